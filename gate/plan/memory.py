"""What replication keeps on each rank: clause MEM-2 of the contract."""

from __future__ import annotations

from gate.plan.deployment import BYTES, Deployment


def replicated_bytes(deployment: Deployment, local_is_view: bool = False) -> int:
    """Bytes that replication adds on one rank, in one layer.

    MEM-2: ``b * (H*(P+R)*Q*(dcp-1)/tp + D)``, where the first term has the bytes of the query
    projection's weight and D those of W_UK_T, bfloat16 also behind a float8 checkpoint. Scales
    are left out.

    Args:
        deployment: The model over its ranks.
        local_is_view: The rank's own W_UK_T is a view of the group's, so that D is
            ``H*P*L*(dcp-1)/tp``; else a second copy of it is kept, as vLLM does, and D is
            ``H*P*L*dcp/tp``.
    """
    model, h, dcp = deployment.model, deployment.h, deployment.dcp
    projection = h * (model.P + model.R) * model.Q * (dcp - 1) * BYTES[deployment.dtype]
    copies = dcp - 1 if local_is_view else dcp
    return projection + h * model.P * model.L * copies * BYTES["bf16"]

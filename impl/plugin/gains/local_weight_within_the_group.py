"""This rank's W_UK_T is held once, within the group's: MEM-2.

Both derived weights of a quantized kv_b_proj are views of its dequantized weight, so that this
stays in memory beside the group's W_UK_T, which has the same numbers again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from impl.plugin.mending import Mending, around

MODULE = "vllm.model_executor.layers.attention.mla_attention"


def process(original: Callable[..., None], self: Any, act_dtype: torch.dtype) -> None:
    """Post-load processing, after which the dequantized weight of kv_b_proj is let go.

    A reload writes where the first load did, for graphs that were captured in between.
    """
    before = self.W_UV.data if _is_shared(self) else None
    original(self, act_dtype)
    group = self.W_UK_T_dcp_qrep
    if group is None or _is_view_of(self.W_UK_T, getattr(self.kv_b_proj, "weight", None)):
        return
    if before is None:
        self.W_UV.data = self.W_UV.data.contiguous().clone()
    else:
        self.W_UV.data = before.copy_(self.W_UV.data)
    self.W_UK_T.data = local_heads(group.data, len(self.W_UK_T))


def local_heads(group: torch.Tensor, heads: int) -> torch.Tensor:
    """This rank's ``heads`` of ``group``, ``[group heads, P, L]``, as a view."""
    from vllm.distributed import get_dcp_group

    return group.narrow(0, get_dcp_group().rank_in_group * heads, heads)


def _is_shared(layer: Any) -> bool:
    group = layer.W_UK_T_dcp_qrep
    return group is not None and _is_view_of(layer.W_UK_T, group)


def _is_view_of(tensor: torch.Tensor, whole: torch.Tensor | None) -> bool:
    return (
        whole is not None
        and tensor.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    )


def change(module: Any) -> None:
    """Hold derived weights once."""
    around(module.MLAAttention, "process_weights_after_loading", process)


GAIN = Mending("local_weight_within_the_group", ("0.32.0", "0.33.0"), {MODULE: change})

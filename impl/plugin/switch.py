"""How vLLM resolves the switch of query replication, for layers that do not ask."""

from __future__ import annotations

from typing import Any

NAME = "VLLM_DCP_Q_REPLICATE"


def resolved(parallel_config: Any) -> bool:
    """Whether replication is asked for: the variable where it is set, else the configuration."""
    from vllm import envs

    if envs.is_set(NAME):
        return bool(getattr(envs, NAME))
    return bool(parallel_config.dcp_q_replicate)

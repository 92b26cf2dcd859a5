"""gather_output under an override is refused at construction: LIN-4."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from impl.plugin.mending import Mending, around

MODULE = "vllm.model_executor.layers.linear"


def build(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """The constructor of a column-parallel layer.

    Raises:
        ValueError: It is to gather its output over the TP group, several ranks of which hold the
            same shard.
    """
    from vllm.distributed import get_tensor_model_parallel_world_size

    asked = inspect.signature(original).bind(self, *args, **kwargs).arguments
    shards, ranks = asked.get("tp_size"), get_tensor_model_parallel_world_size()
    gathers = asked.get("gather_output") and not asked.get("disable_tp")
    if gathers and shards is not None and shards != ranks:
        raise ValueError(
            f"{asked.get('prefix') or 'the layer'}: gather_output with tp_size={shards} in a group "
            f"of {ranks} ranks would repeat columns. Gather outside the layer"
        )
    original(self, *args, **kwargs)


def change(module: Any) -> None:
    """Check where a column-parallel layer is built."""
    around(module.ColumnParallelLinear, "__init__", build)


MENDING = Mending("gather_output_duplicates_columns", ("0.32.0", "0.33.0"), {MODULE: change})

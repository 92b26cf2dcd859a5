"""A merge by all-reduce hands the collective its own memory: MRG-1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from impl.plugin.mending import Mending, around

MODULE = "vllm.v1.attention.ops.dcp"


def merge(original: Callable[..., Any], out: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """The merge, of a partial output that is nobody else's memory."""
    return original(out.contiguous(), *args, **kwargs)


def change(module: Any) -> None:
    """Let no strided output reach the all-reduce."""
    around(module, "cp_lse_ag_out_ar", merge)


MENDING = Mending("all_reduce_of_a_strided_tensor", ("0.32.0", "0.33.0"), {MODULE: change})

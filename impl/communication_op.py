"""Collectives that a model calls, also where it is compiled."""

from __future__ import annotations

import torch

from impl.parallel_state import get_tp_group


@torch.library.custom_op("dcp_qrep::all_reduce", mutates_args=())
def _all_reduce(input_: torch.Tensor) -> torch.Tensor:
    summed = get_tp_group().all_reduce(input_)
    # A group of one rank hands back its input, which an operator must not.
    return summed.clone() if summed is input_ else summed


@_all_reduce.register_fake
def _(input_: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(input_, memory_format=torch.contiguous_format)


def tensor_model_parallel_all_reduce(input_: torch.Tensor) -> torch.Tensor:
    """Sum ``input_`` over the tensor-parallel ranks; one operator in a compiled graph."""
    if torch.compiler.is_compiling():
        summed: torch.Tensor = _all_reduce(input_)
        return summed
    return get_tp_group().all_reduce(input_)

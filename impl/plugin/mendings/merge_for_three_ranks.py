"""A merge over a number of ranks that is no power of two: MRG-1, MRG-4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from impl.plugin.mending import Mending, around

MODULE = "vllm.v1.attention.ops.dcp"


def with_empty_ranks(lses: torch.Tensor) -> torch.Tensor:
    """``lses`` of ``[ranks, ...]`` with ranks without keys behind, up to a power of two.

    Triton's kernels count in powers of two; a log-sum-exp of -inf weighs nothing.
    """
    ranks = len(lses)
    missing = (1 << (ranks - 1).bit_length()) - ranks
    if not missing:
        return lses
    return torch.cat([lses, lses.new_full((missing, *lses.shape[1:]), -torch.inf)])


def correct_attn_out(
    original: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    out: torch.Tensor,
    lses: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighing of this rank's output; see :func:`with_empty_ranks`."""
    return original(out, with_empty_ranks(lses), *args, **kwargs)


def change(module: Any) -> None:
    """Give the merge's kernel a number of ranks that it can take."""
    around(module, "correct_attn_out", correct_attn_out)


MENDING = Mending("merge_for_three_ranks", ("0.32.0", "0.33.0"), {MODULE: change})

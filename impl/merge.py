"""Merging partial attention over a DCP group by log-sum-exp.

With keys split over ranks, rank j returns the attention ``o_j`` over its keys and their
log-sum-exp ``l_j``. Attention over all keys is ``sum_j w_j o_j`` with
``w_j = exp(l_j) / sum_k exp(l_k)`` and log-sum-exp ``log sum_k exp(l_k)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from impl.layout import divide
from impl.parallel_state import GroupCoordinator


def mask_empty_shards(
    lse: torch.Tensor, seq_lens: torch.Tensor, query_start_loc: torch.Tensor
) -> torch.Tensor:
    """Set the log-sum-exp of rows without local keys to minus infinity.

    Args:
        lse: ``[B, H]``.
        seq_lens: ``[requests]``, local lengths.
        query_start_loc: ``[requests + 1]``, first row of each request; rows from the last
            boundary on belong to none.

    Returns:
        A new tensor in the shape of ``lse``.
    """
    # Searched, not repeated by lengths: those would have to be waited for.
    row = torch.arange(lse.shape[0], device=lse.device, dtype=query_start_loc.dtype)
    request = torch.searchsorted(query_start_loc[1:], row, right=True)
    has_keys = torch.nn.functional.pad(seq_lens > 0, (0, 1))
    return lse.masked_fill(~has_keys[request].unsqueeze(-1), -math.inf)


def lse_weights(lses: torch.Tensor, is_lse_base_on_e: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Share of each shard in the merged attention.

    Args:
        lses: ``[N, ...]`` float32, one row a shard. Minus infinity says that a shard has no
            keys; so do NaN and plus infinity, which no shard with keys returns.
        is_lse_base_on_e: Base of ``lses``: e, or 2.

    Returns:
        Weights in the shape of ``lses``, summing to 1 over shards, or all 0 where no shard
        has keys; and the merged log-sum-exp, ``[...]``, in the base of ``lses``.
    """
    lses = torch.where(lses < math.inf, lses, -math.inf)
    largest = lses.amax(dim=0)
    # Subtracting the largest first keeps the error independent of the magnitude of the LSE.
    base = torch.where(largest == -math.inf, torch.zeros_like(largest), largest)
    shifted = lses - base
    terms = shifted.exp() if is_lse_base_on_e else shifted.exp2()
    total = terms.sum(dim=0)
    weights = terms / torch.where(total == 0, torch.ones_like(total), total)
    return weights, base + (total.log() if is_lse_base_on_e else total.log2())


def _own_lse(
    lse: torch.Tensor, seq_lens: torch.Tensor | None, query_start_loc: torch.Tensor | None
) -> torch.Tensor:
    """This rank's log-sum-exp in float32, masked where lengths are given."""
    if (seq_lens is None) != (query_start_loc is None):
        raise ValueError("seq_lens and query_start_loc must be given together, or neither")
    lse = lse.float()
    if seq_lens is None or query_start_loc is None:
        return lse
    return mask_empty_shards(lse, seq_lens, query_start_loc)


def _weigh(out: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """``out`` ``[..., D]`` in float32 times its weight ``[...]``; 0 where that is 0.

    A shard without keys may hold NaN, and NaN times a weight of 0 would stay NaN.
    """
    weights = weights.unsqueeze(-1)
    return torch.where(weights == 0, 0.0, out.float() * weights)


def _gather_and_weigh(
    cp_attn_out: torch.Tensor,
    cp_attn_lse: torch.Tensor,
    cp_group: GroupCoordinator,
    is_lse_base_on_e: bool,
    seq_lens: torch.Tensor | None,
    query_start_loc: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    lse = _own_lse(cp_attn_lse, seq_lens, query_start_loc)
    lses = cp_group.all_gather(lse.unsqueeze(0), dim=0)
    weights, merged = lse_weights(lses, is_lse_base_on_e)
    weighted = _weigh(cp_attn_out, weights[cp_group.rank_in_group])
    return weighted.to(cp_attn_out.dtype), merged


def _heads_of_this_rank(tensor: torch.Tensor, cp_group: GroupCoordinator) -> torch.Tensor:
    return tensor.chunk(cp_group.world_size, dim=1)[cp_group.rank_in_group]


def cp_lse_ag_out_rs(
    cp_attn_out: torch.Tensor,
    cp_attn_lse: torch.Tensor,
    cp_group: GroupCoordinator,
    return_lse: bool = False,
    is_lse_base_on_e: bool = True,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Merge over the group: all-gather the LSE, reduce-scatter the weighted outputs.

    Args:
        cp_attn_out: ``[B, H, D]`` attention of the group's heads over this rank's keys.
        cp_attn_lse: ``[B, H]`` its log-sum-exp.
        cp_group: The group that shares the keys; its size divides H.
        return_lse: Return the merged log-sum-exp too.
        is_lse_base_on_e: Base of the log-sum-exp: e, or 2.
        seq_lens: ``[requests]`` local lengths; with query_start_loc, rows without local keys
            are masked whatever ``cp_attn_lse`` says of them.
        query_start_loc: ``[requests + 1]`` first row of each request.

    Returns:
        ``[B, H / group size, D]`` of this rank's heads, and their float32 log-sum-exp,
        ``[B, H / group size]``, with return_lse.

    Raises:
        ValueError: Only one of seq_lens and query_start_loc is given, or the group does not
            divide H.
    """
    weighted, lse = _gather_and_weigh(
        cp_attn_out, cp_attn_lse, cp_group, is_lse_base_on_e, seq_lens, query_start_loc
    )
    out = cp_group.reduce_scatter(weighted, dim=1)
    if not return_lse:
        return out
    return out, _heads_of_this_rank(lse, cp_group)


def cp_lse_ag_out_ar(
    cp_attn_out: torch.Tensor,
    cp_attn_lse: torch.Tensor,
    cp_group: GroupCoordinator,
    return_lse: bool = False,
    is_lse_base_on_e: bool = True,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Merge over the group: all-gather the LSE, all-reduce the weighted outputs.

    Takes what :func:`cp_lse_ag_out_rs` takes.

    Returns:
        ``[B, H, D]``, every head on every rank, and with return_lse the float32 log-sum-exp,
        ``[B, H]``.

    Raises:
        ValueError: Only one of seq_lens and query_start_loc is given.
    """
    weighted, lse = _gather_and_weigh(
        cp_attn_out, cp_attn_lse, cp_group, is_lse_base_on_e, seq_lens, query_start_loc
    )
    out = cp_group.all_reduce(weighted)
    return (out, lse) if return_lse else out


def dcp_a2a_lse_reduce(
    cp_attn_out: torch.Tensor,
    cp_attn_lse: torch.Tensor,
    cp_group: GroupCoordinator,
    return_lse: bool = False,
    is_lse_base_on_e: bool = True,
    seq_lens: torch.Tensor | None = None,
    query_start_loc: torch.Tensor | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Merge over the group: send each rank its heads and their LSE, in one all-to-all.

    Takes and returns what :func:`cp_lse_ag_out_rs` does. Outputs cross as they are and are
    weighted and summed in float32 where they arrive, so each is rounded once less.

    Raises:
        ValueError: Only one of seq_lens and query_start_loc is given, or the group does not
            divide H.
    """
    ranks = cp_group.world_size
    rows, heads, width = cp_attn_out.shape
    share = divide(heads, ranks, "heads of the group by its ranks")
    lse = _own_lse(cp_attn_lse, seq_lens, query_start_loc)
    # Bytes, because an output of 16 bits has no room for a log-sum-exp of 32.
    records = torch.cat(
        [cp_attn_out.contiguous().view(torch.uint8), lse.unsqueeze(-1).view(torch.uint8)], dim=-1
    )
    sent = records.view(rows, ranks, share, -1).transpose(0, 1)
    received = cp_group.all_to_all(sent)
    out_bytes, lse_bytes = received.split([width * cp_attn_out.itemsize, lse.itemsize], dim=-1)
    outs = out_bytes.contiguous().view(cp_attn_out.dtype)
    weights, merged = lse_weights(
        lse_bytes.contiguous().view(torch.float32).squeeze(-1), is_lse_base_on_e
    )
    out = _weigh(outs, weights).sum(dim=0).to(cp_attn_out.dtype)
    return (out, merged) if return_lse else out


# By ParallelConfig.dcp_comm_backend: to ``[B, H / group size, D]`` of this rank's heads.
DCP_COMBINE: dict[str, Callable[..., Any]] = {
    "ag_rs": cp_lse_ag_out_rs,
    "a2a": dcp_a2a_lse_reduce,
}

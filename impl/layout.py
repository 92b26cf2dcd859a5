"""Arithmetic of decode context parallelism: which rank holds which heads, and which tokens.

Ranks of one DCP group are consecutive TP ranks. Token ``t`` of a sequence lives on rank
``(t // interleave) % dcp_world_size`` of its group, see ``cp_kv_cache_interleave_size``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


def divide(numerator: int, denominator: int, what: str) -> int:
    """Divide exactly.

    Raises:
        ValueError: ``denominator`` does not divide ``numerator``.
    """
    quotient, remainder = divmod(numerator, denominator)
    if remainder:
        raise ValueError(f"{what}: {numerator} is not divisible by {denominator}")
    return quotient


@dataclass(frozen=True, slots=True)
class DCPRank:
    """Place of a TP rank among the DCP groups.

    Attributes:
        group: Index of its group.
        rank_in_group: Its index in that group.
        num_groups: Number of groups.
        group_size: Ranks of a group, the decode context parallel size.
    """

    group: int
    rank_in_group: int
    num_groups: int
    group_size: int


def dcp_rank_of(tp_rank: int, tp_size: int, dcp_world_size: int) -> DCPRank:
    """Place ``tp_rank`` among the DCP groups.

    Raises:
        ValueError: ``dcp_world_size`` does not divide ``tp_size``.
    """
    num_groups = divide(tp_size, dcp_world_size, "tensor parallel size by DCP size")
    return DCPRank(
        group=tp_rank // dcp_world_size,
        rank_in_group=tp_rank % dcp_world_size,
        num_groups=num_groups,
        group_size=dcp_world_size,
    )


def shard_range(total: int, rank: int, size: int, what: str) -> tuple[int, int]:
    """First index and length of shard ``rank`` of ``size`` equal ones.

    Raises:
        ValueError: ``size`` does not divide ``total``.
    """
    length = divide(total, size, what)
    return rank * length, length


def check_row_blocks(prefix: str, rows: int, shards: int, row_block: int) -> None:
    """Refuse shards that cut a block of rows with one scale or one packed element.

    Args:
        prefix: Name of the layer.
        rows: Of the whole weight.
        shards: Equal parts of the rows.
        row_block: Rows of one block.

    Raises:
        ValueError: A shard would start or end inside a block.
    """
    if shards > 1 and (rows // shards) % row_block:
        raise ValueError(
            f"{prefix or 'the layer'}: {shards} shards leave each {rows // shards} of {rows} "
            f"rows, which cuts a quantisation block of {row_block} rows: choose sizes of the "
            f"parallel groups that leave a multiple of {row_block}, or leave the layer "
            "unquantised"
        )


def get_dcp_local_seq_lens(
    seq_lens: torch.Tensor,
    dcp_size: int = 1,
    dcp_rank: int | None = None,
    cp_kv_cache_interleave_size: int = 1,
) -> torch.Tensor:
    """Count the tokens of each sequence that a rank of the DCP group stores.

    Every full round of ``dcp_size * interleave`` tokens leaves ``interleave`` of them on each
    rank; the rest fills the ranks in order.

    Args:
        seq_lens: Global lengths, any shape, integers.
        dcp_size: Ranks of the group.
        dcp_rank: One rank of the group, or None for all of them.
        cp_kv_cache_interleave_size: Consecutive tokens that stay on one rank.

    Returns:
        int32 lengths, in the shape of ``seq_lens``, with a last axis of ``dcp_size`` where
        ``dcp_rank`` is None.
    """
    interleave = cp_kv_cache_interleave_size
    lens = seq_lens.to(torch.int32)
    first_token: int | torch.Tensor
    if dcp_rank is None:
        lens = lens[..., None]
        first_token = interleave * torch.arange(dcp_size, dtype=torch.int32, device=seq_lens.device)
    else:
        first_token = interleave * dcp_rank
    stride = dcp_size * interleave
    rounds = lens // stride
    rest = lens % stride - first_token
    return rounds * interleave + rest.clamp(min=0, max=interleave)


def dcp_local_index(token: int, dcp_size: int, cp_kv_cache_interleave_size: int) -> tuple[int, int]:
    """Rank within the DCP group that stores ``token``, and the token's index there."""
    interleave = cp_kv_cache_interleave_size
    run, offset = divmod(token, interleave)
    round_, rank = divmod(run, dcp_size)
    return rank, round_ * interleave + offset


def slot_mapping(
    positions: list[int],
    block_row: list[int],
    block_size: int,
    dcp_size: int,
    dcp_rank: int,
    cp_kv_cache_interleave_size: int,
) -> list[int]:
    """Slots of the tokens of one request in a rank's KV cache.

    Args:
        positions: Global positions of the tokens.
        block_row: The request's blocks, in order of the local tokens.
        block_size: Local tokens of one block.
        dcp_size: Ranks of the group.
        dcp_rank: The rank that asks.
        cp_kv_cache_interleave_size: Consecutive tokens that stay on one rank.

    Returns:
        ``block * block_size + offset`` for each token, -1 where another rank stores it.
    """
    slots = []
    for position in positions:
        owner, index = dcp_local_index(position, dcp_size, cp_kv_cache_interleave_size)
        if owner != dcp_rank:
            slots.append(-1)
            continue
        block, offset = divmod(index, block_size)
        slots.append(block_row[block] * block_size + offset)
    return slots

"""What the MLA layer is told of a batch: decode requests first, then prefill requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from impl.config import ParallelConfig
from impl.layout import get_dcp_local_seq_lens


@dataclass(frozen=True, slots=True)
class ContextPiece:
    """Consecutive tokens of one prefill request's context.

    Attributes:
        request: Index among the prefill requests.
        start: First token, global; a multiple of ``dcp_world_size * interleave``, so that it
            is the ``start / dcp_world_size``-th local token of every rank.
        stop: One past the last token.
    """

    request: int
    start: int
    stop: int


ContextChunk = tuple[ContextPiece, ...]


def plan_context_chunks(
    context_lens: Sequence[int], stride: int, workspace_size: int
) -> list[ContextChunk]:
    """Cut the contexts of a batch into chunks that fit a workspace.

    Args:
        context_lens: Tokens of each prefill request that were computed in earlier steps.
        stride: ``dcp_world_size * interleave``; each piece fills whole strides of the
            workspace, as every rank contributes equally many rows to a gather.
        workspace_size: Rows of the workspace.

    Raises:
        ValueError: The workspace does not hold one stride.
    """
    limit = workspace_size // stride * stride
    if not limit and any(context_lens):
        raise ValueError(
            f"a chunked-prefill workspace of {workspace_size} rows does not hold one round of "
            f"{stride} tokens (dcp_world_size * cp_kv_cache_interleave_size): enlarge it to a "
            f"multiple of {stride}"
        )
    chunks: list[ContextChunk] = []
    pieces: list[ContextPiece] = []
    room = limit
    for request, length in enumerate(context_lens):
        start = 0
        while start < length:
            if not room:
                chunks.append(tuple(pieces))
                pieces, room = [], limit
            stop = min(start + room, length)
            pieces.append(ContextPiece(request, start, stop))
            room -= -(-(stop - start) // stride) * stride
            start = stop
    if pieces:
        chunks.append(tuple(pieces))
    return chunks


@dataclass
class MLACommonPrefillMetadata:
    """The prefill requests of a batch.

    Attributes:
        block_table: ``[num_prefills, max_blocks]`` int32, blocks of this rank's KV shard.
        query_lens: This step's tokens of each request.
        chunks: Their contexts, in chunks that fit the workspace.
    """

    block_table: torch.Tensor
    query_lens: list[int]
    chunks: list[ContextChunk]


@dataclass
class MLACommonDecodeMetadata:
    """The decode requests of a batch.

    Attributes:
        block_table: ``[num_decodes, max_blocks]`` int32, blocks of this rank's KV shard.
        seq_lens: ``[num_decodes]`` int32, keys of each request on this rank.
        dcp_tot_seq_lens: ``[num_decodes]`` int32, keys of each request over the DCP group.
        request_of_row: ``[num_decode_tokens]`` int64, request of each row.
        visible_seq_lens: ``[num_decode_tokens]`` int32, local keys that each row may attend:
            those at or before its own position, the first so many of the request's.
    """

    block_table: torch.Tensor
    seq_lens: torch.Tensor
    dcp_tot_seq_lens: torch.Tensor
    request_of_row: torch.Tensor
    visible_seq_lens: torch.Tensor


@dataclass
class MLACommonMetadata:
    """A batch.

    Attributes:
        num_actual_tokens: Live rows, with those that a captured graph pads decodes by; rows
            behind them are left alone.
        num_decodes: Decode requests.
        num_decode_tokens: Rows of the decode requests.
        num_prefills: Prefill requests.
        decode: Of the decode requests; None where there are none.
        prefill: Of the prefill requests; None where there are none.
    """

    num_actual_tokens: int
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    decode: MLACommonDecodeMetadata | None
    prefill: MLACommonPrefillMetadata | None


class MLACommonMetadataBuilder:
    """Builds a batch's metadata for one rank, once a step for all layers.

    Args:
        parallel_config: Says how the keys are spread over the DCP group.
        dcp_rank: This rank in its DCP group.
        chunked_prefill_workspace_size: Context tokens that a prefill attends at once.
    """

    def __init__(
        self, parallel_config: ParallelConfig, dcp_rank: int, chunked_prefill_workspace_size: int
    ) -> None:
        self.dcp_world_size = parallel_config.decode_context_parallel_size
        self.interleave = parallel_config.cp_kv_cache_interleave_size
        self.dcp_rank = dcp_rank
        self.chunked_prefill_workspace_size = chunked_prefill_workspace_size

    def build(
        self,
        query_lens: Sequence[int],
        seq_lens: Sequence[int],
        num_decodes: int,
        block_table: torch.Tensor,
        padding: int = 0,
    ) -> MLACommonMetadata:
        """Metadata of a batch whose first ``num_decodes`` requests are decodes.

        Args:
            query_lens: This step's tokens of each request.
            seq_lens: Tokens of each request, this step's included, over the DCP group.
            num_decodes: Requests that attend the compressed keys.
            block_table: ``[requests, max_blocks]`` int32, blocks of this rank's KV shard.
            padding: Rows behind those of the requests, all decodes, as a captured graph has
                them: they attend nothing. The requests behind the last one may be idle, of no
                tokens.
        """
        num_decode_tokens = sum(query_lens[:num_decodes]) + padding
        decode = prefill = None
        if num_decodes:
            decode = self._build_decode(
                torch.tensor(query_lens[:num_decodes]),
                torch.tensor(seq_lens[:num_decodes], dtype=torch.int32),
                block_table[:num_decodes],
                padding,
            )
        if len(query_lens) > num_decodes:
            new = list(query_lens[num_decodes:])
            context = [
                length - query for length, query in zip(seq_lens[num_decodes:], new, strict=True)
            ]
            prefill = MLACommonPrefillMetadata(
                block_table=block_table[num_decodes:],
                query_lens=new,
                chunks=plan_context_chunks(
                    context,
                    self.dcp_world_size * self.interleave,
                    self.chunked_prefill_workspace_size,
                ),
            )
        return MLACommonMetadata(
            num_actual_tokens=sum(query_lens) + padding,
            num_decodes=num_decodes,
            num_decode_tokens=num_decode_tokens,
            num_prefills=len(query_lens) - num_decodes,
            decode=decode,
            prefill=prefill,
        )

    def _build_decode(
        self,
        query_lens: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
        padding: int,
    ) -> MLACommonDecodeMetadata:
        request = torch.repeat_interleave(query_lens)
        # The last row of a request sees all of it, each row before it one key less.
        rows_after = query_lens.cumsum(0)[request] - 1 - torch.arange(request.shape[0])
        visible = seq_lens[request] - rows_after.to(torch.int32)
        # Rows of padding are the last request's, and see none of it.
        request = torch.cat([request, request.new_full((padding,), len(query_lens) - 1)])
        visible = torch.cat([visible, visible.new_zeros(padding)])
        device = block_table.device
        return MLACommonDecodeMetadata(
            block_table=block_table,
            seq_lens=self._local(seq_lens).to(device),
            dcp_tot_seq_lens=seq_lens.to(device),
            request_of_row=request.to(device),
            visible_seq_lens=self._local(visible).to(device),
        )

    def _local(self, lens: torch.Tensor) -> torch.Tensor:
        return get_dcp_local_seq_lens(lens, self.dcp_world_size, self.dcp_rank, self.interleave)

"""What the MLA layer is told of a batch: decode requests first, then prefill requests."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class MLACommonDecodeMetadata:
    """The decode requests of a batch.

    Attributes:
        block_table: ``[num_decodes, max_blocks]`` int32, blocks of this rank's KV shard.
        seq_lens: ``[num_decodes]`` int32, keys of each request on this rank.
        dcp_tot_seq_lens: ``[num_decodes]`` int32, keys of each request over the DCP group.
    """

    block_table: torch.Tensor
    seq_lens: torch.Tensor
    dcp_tot_seq_lens: torch.Tensor


@dataclass
class MLACommonMetadata:
    """A batch.

    Attributes:
        num_actual_tokens: Live rows; rows behind them are padding.
        query_start_loc: ``[requests + 1]`` int32, first row of each request.
        num_decodes: Decode requests.
        num_decode_tokens: Rows of the decode requests.
        num_prefills: Prefill requests.
        decode: Of the decode requests; None where there are none.
    """

    num_actual_tokens: int
    query_start_loc: torch.Tensor
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    decode: MLACommonDecodeMetadata | None

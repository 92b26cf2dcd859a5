"""MLA decode attention in torch operators, on any device."""

from __future__ import annotations

import math

import torch

from impl.layout import get_dcp_local_seq_lens
from impl.metadata import MLACommonMetadata


class TorchMLAImpl:
    """Multi-query attention of absorbed queries over this rank's KV shard.

    Args:
        scale: Softmax scale.
        kv_lora_rank: Width of a token's compressed part, which is also its value.
        dcp_world_size: Ranks that share the keys.
        dcp_rank: This rank among them.
        cp_kv_cache_interleave_size: Consecutive tokens that stay on one rank.
    """

    can_return_lse_for_decode = True
    lse_base_on_e = True

    def __init__(
        self,
        scale: float,
        kv_lora_rank: int,
        dcp_world_size: int,
        dcp_rank: int,
        cp_kv_cache_interleave_size: int,
    ) -> None:
        self.scale = scale
        self.kv_lora_rank = kv_lora_rank
        self.dcp_world_size = dcp_world_size
        self.dcp_rank = dcp_rank
        self.cp_kv_cache_interleave_size = cp_kv_cache_interleave_size

    def visible_keys(self, metadata: MLACommonMetadata) -> tuple[torch.Tensor, torch.Tensor]:
        """Local keys that each decode row may attend: those at or before its own position.

        Returns:
            Request of each row and number of its first local keys, ``[num_decode_tokens]``.
        """
        decode = metadata.decode
        assert decode is not None
        starts = metadata.query_start_loc[: metadata.num_decodes + 1].long()
        query_lens = starts[1:] - starts[:-1]
        request = torch.repeat_interleave(query_lens)
        row = torch.arange(metadata.num_decode_tokens, device=request.device)
        rows_after = starts[1:][request] - 1 - row
        keys = decode.dcp_tot_seq_lens[request] - rows_after.to(torch.int32)
        return request, get_dcp_local_seq_lens(
            keys, self.dcp_world_size, self.dcp_rank, self.cp_kv_cache_interleave_size
        )

    def forward_mqa(
        self, q: torch.Tensor, kv_c_and_k_pe_cache: torch.Tensor, attn_metadata: MLACommonMetadata
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend the local keys.

        Args:
            q: ``[B, H, kv_lora_rank + qk_rope_head_dim]``.
            kv_c_and_k_pe_cache: ``[blocks, block_size, kv_lora_rank + qk_rope_head_dim]``.
                Tokens that no row may attend are not read into the result, NaN included.
            attn_metadata: The batch; its decode requests have B rows.

        Returns:
            ``[B, H, kv_lora_rank]`` in the dtype of ``q`` and the float32 log-sum-exp to base
            e, ``[B, H]``: zeros and minus infinity for a row without local keys.
        """
        decode = attn_metadata.decode
        assert decode is not None
        request, visible = self.visible_keys(attn_metadata)
        block_size = kv_c_and_k_pe_cache.shape[1]
        blocks = -(-int(decode.seq_lens.max()) // block_size)
        keys = kv_c_and_k_pe_cache[decode.block_table[:, :blocks].long()].flatten(1, 2).float()
        token = torch.arange(keys.shape[1], device=q.device)
        # A weight of 0 would still carry the NaN of a slot that was never written.
        keys = torch.where((token < decode.seq_lens.unsqueeze(-1)).unsqueeze(-1), keys, 0.0)
        keys = keys[request]
        seen = token < visible.unsqueeze(-1)

        scores = torch.bmm(q.float(), keys.transpose(1, 2)) * self.scale
        scores = scores.masked_fill(~seen.unsqueeze(1), -math.inf)
        lse = scores.logsumexp(dim=-1)
        # Without keys the log-sum-exp is -inf; subtracting 0 instead keeps every weight at 0.
        weights = (scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp()
        return torch.bmm(weights, keys[..., : self.kv_lora_rank]).to(q.dtype), lse

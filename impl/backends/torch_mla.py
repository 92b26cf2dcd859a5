"""MLA decode attention in torch operators, on any device."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import torch

from impl.kv_cache import dequantize
from impl.metadata import MLACommonMetadata


class MLALayer(Protocol):
    """What the kernel asks of its layer."""

    _q_scale: torch.Tensor
    _k_scale: torch.Tensor
    W_UV: torch.Tensor


class TorchMLAImpl:
    """Multi-query attention of absorbed queries over this rank's KV shard.

    Args:
        scale: Softmax scale.
        kv_lora_rank: Width of a token's compressed part, which is also its value.
    """

    can_return_lse_for_decode: ClassVar[bool] = True
    q_pad_num_heads: ClassVar[int | None] = None
    supports_quant_query_input = True
    lse_base_on_e = True

    def __init__(self, scale: float, kv_lora_rank: int) -> None:
        self.scale = scale
        self.kv_lora_rank = kv_lora_rank

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        layer: MLALayer,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend the local keys.

        Args:
            q: ``[B, H, kv_lora_rank + qk_rope_head_dim]``, or its two parts; float8 is scaled by
                the layer's ``_q_scale``.
            kv_c_and_k_pe_cache: ``[blocks, block_size, kv_lora_rank + qk_rope_head_dim]``.
                Tokens that no row may attend are not read into the result, NaN included;
                float8 is scaled by the layer's ``_k_scale``.
            attn_metadata: The batch; its decode requests have B rows.
            layer: The layer that asks.

        Returns:
            ``[B, H, kv_lora_rank]`` in the dtype of the activations and the float32
            log-sum-exp to base e, ``[B, H]``: zeros and minus infinity for a row without local
            keys.
        """
        decode = attn_metadata.decode
        assert decode is not None
        q = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        block_size = kv_c_and_k_pe_cache.shape[1]
        blocks = -(-int(decode.seq_lens.max()) // block_size)
        keys = kv_c_and_k_pe_cache[decode.block_table[:, :blocks].long()].flatten(1, 2)
        keys = dequantize(keys, layer._k_scale, torch.float32)
        token = torch.arange(keys.shape[1], device=q.device)
        # A weight of 0 would still carry the NaN of a slot that was never written.
        keys = torch.where((token < decode.seq_lens.unsqueeze(-1)).unsqueeze(-1), keys, 0.0)
        keys = keys[decode.request_of_row]
        seen = token < decode.visible_seq_lens.unsqueeze(-1)

        scores = (
            torch.bmm(dequantize(q, layer._q_scale, torch.float32), keys.transpose(1, 2))
            * self.scale
        )
        scores = scores.masked_fill(~seen.unsqueeze(1), -math.inf)
        lse = scores.logsumexp(dim=-1)
        # Without keys the log-sum-exp is -inf; subtracting 0 instead keeps every weight at 0.
        weights = (scores - lse.masked_fill(lse == -math.inf, 0.0).unsqueeze(-1)).exp()
        return torch.bmm(weights, keys[..., : self.kv_lora_rank]).to(layer.W_UV.dtype), lse

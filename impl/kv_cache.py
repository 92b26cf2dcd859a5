"""The paged KV cache: how tokens get into it and out of it."""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
_FP8_NAMES = frozenset({"fp8", "fp8_e4m3"})


def is_quantized_kv_cache(cache_dtype: str) -> bool:
    """Whether entries are stored as float8 e4m3 times a scale of the layer."""
    return cache_dtype in _FP8_NAMES


def quantize_fp8(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Nearest float8 e4m3 numbers to ``x / scale``; beyond the largest, that one."""
    largest = torch.finfo(FP8).max
    return (x.float() / scale).clamp(-largest, largest).to(FP8)


def dequantize(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``x * scale`` for float8 ``x``, else ``x``; in ``dtype``."""
    return (x.float() * scale).to(dtype) if x.dtype == FP8 else x.to(dtype)


def concat_and_cache_mla(
    kv_c: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    scale: torch.Tensor,
) -> None:
    """Store each token, compressed part first, at its slot.

    Args:
        kv_c: ``[rows, kv_lora_rank]``.
        k_pe: ``[rows, 1, qk_rope_head_dim]``.
        kv_cache: ``[blocks, block_size, kv_lora_rank + qk_rope_head_dim]``, written in place.
        slot_mapping: ``[tokens]`` int64, at most as many as rows; -1 where another rank
            stores the token.
        scale: Of a float8 cache.
    """
    mine = (slot_mapping >= 0).nonzero().squeeze(-1)
    tokens = torch.cat([kv_c[mine], k_pe[mine].squeeze(1)], dim=-1)
    tokens = quantize_fp8(tokens, scale) if kv_cache.dtype == FP8 else tokens.to(kv_cache.dtype)
    slots = slot_mapping[mine]
    block_size = kv_cache.shape[1]
    kv_cache[slots // block_size, slots % block_size] = tokens

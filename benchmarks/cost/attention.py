"""Decode attention of whichever kernel this machine has: absorbed queries over a KV cache.

Each kernel is made for a batch and returns what attends step i's cache, which is other memory
than the last step's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.cost.pool import Pool

PAGE = 64
LATENT, ROPE = 512, 64
WIDTH = LATENT + ROPE
# Query and step to the output and its log-sum-exp.
Attend = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Paged:
    """A paged cache for a batch of requests of equal length.

    Attributes:
        table: ``[batch, pages]`` int32.
        cache: Cache of step i, ``[pages, PAGE, WIDTH]``.
        lengths: ``[batch]`` int32.
    """

    table: torch.Tensor
    cache: Callable[[int], torch.Tensor]
    lengths: torch.Tensor


def paged(pool: Pool, batch: int, keys: int, device: torch.device) -> Paged:
    """A cache in the pool; requests share pages once they are past half of it."""
    pages = -(-keys // PAGE)
    everything = pool.numbers(torch.bfloat16)
    total = everything.numel() // (PAGE * WIDTH)
    held = min(batch * pages, total // 2)
    numbers = torch.arange(batch * pages, dtype=torch.int32, device=device) % held

    def cache(index: int) -> torch.Tensor:
        first = index * held % (total - held + 1)
        start = first * PAGE * WIDTH
        return everything[start : start + held * PAGE * WIDTH].view(held, PAGE, WIDTH)

    lengths = torch.full((batch,), keys, dtype=torch.int32, device=device)
    return Paged(numbers.view(batch, pages), cache, lengths)


class FlashMLA:
    """vLLM's FlashMLA, dense and bfloat16, on Hopper."""

    name = "flashmla"

    def __init__(self, pool: Pool, device: torch.device) -> None:
        from vllm.v1.attention.ops import flashmla

        supported, why = flashmla.is_flashmla_dense_supported()
        if not supported:
            raise RuntimeError(why)
        self._ops, self._pool, self._device = flashmla, pool, device

    def attend(self, batch: int, heads: int, keys: int) -> Attend:
        held = paged(self._pool, batch, keys, self._device)
        # Planned in the first call, and the same for every one of these lengths.
        plan = self._ops.get_mla_metadata(held.lengths, heads, 1)[0]

        def run(query: torch.Tensor, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            out, lse = self._ops.flash_mla_with_kvcache(
                q=query.unsqueeze(1),
                k_cache=held.cache(index).unsqueeze(2),
                block_table=held.table,
                cache_seqlens=held.lengths,
                head_dim_v=LATENT,
                tile_scheduler_metadata=plan,
                softmax_scale=WIDTH**-0.5,
                causal=True,
            )
            return out.squeeze(1), lse.squeeze(-1)

        return run


class FlashInfer:
    """FlashInfer's paged MLA, backend fa3, on Hopper."""

    name = "flashinfer"

    def __init__(self, pool: Pool, device: torch.device) -> None:
        from flashinfer import mla

        self._mla, self._pool, self._device = mla, pool, device
        self._workspace = torch.empty(128 << 20, dtype=torch.uint8, device=device)

    def attend(self, batch: int, heads: int, keys: int) -> Attend:
        held = paged(self._pool, batch, keys, self._device)
        wrapper: Any = self._mla.BatchMLAPagedAttentionWrapper(
            float_workspace_buffer=self._workspace, backend="fa3"
        )
        pages = held.table.shape[1]
        starts = torch.arange(batch + 1, dtype=torch.int32, device=self._device)
        wrapper.plan(
            metadata=self._mla.MLAPlanMetadata.csr(
                qo_indptr=starts,
                kv_indptr=starts * pages,
                kv_indices=held.table.flatten(),
                kv_len_arr=held.lengths,
            ),
            num_heads=heads,
            head_dim_ckv=LATENT,
            head_dim_kpe=ROPE,
            page_size=PAGE,
            causal=False,
            sm_scale=WIDTH**-0.5,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
            query_layout="split",
            kv_cache_layout="packed",
            lse_mode="base2",
        )

        def run(query: torch.Tensor, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            out = query.new_empty((batch, heads, LATENT))
            lse = torch.empty((batch, heads), dtype=torch.float32, device=query.device)
            halves = query.split([LATENT, ROPE], dim=-1)
            wrapper.run(query=halves, kv_cache=held.cache(index), out=out, lse=lse, return_lse=True)
            return out, lse

        return run


class Torch:
    """Two matrix products and a softmax; several times slower than a fused kernel."""

    name = "torch"

    def __init__(self, pool: Pool, device: torch.device) -> None:
        self._pool = pool

    def attend(self, batch: int, heads: int, keys: int) -> Attend:
        shape = (batch, keys, WIDTH)
        self._pool.tensor(shape, 0, torch.bfloat16)

        def run(query: torch.Tensor, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            cache = self._pool.tensor(shape, index, torch.bfloat16)
            scores = torch.bmm(query, cache.transpose(1, 2)).float() * WIDTH**-0.5
            lse = scores.logsumexp(-1)
            weights = (scores - lse.unsqueeze(-1)).exp().to(query.dtype)
            return torch.bmm(weights, cache[..., :LATENT]), lse

        return run


Kernel = FlashMLA | FlashInfer | Torch


def kernel(pool: Pool, device: torch.device) -> tuple[Kernel, list[str]]:
    """The fastest kernel there is, and why each faster one is not."""
    missing = []
    fused: tuple[type[FlashMLA] | type[FlashInfer], ...] = (FlashMLA, FlashInfer)
    for kind in fused if device.type == "cuda" else ():
        try:
            found = kind(pool, device)
            # Some libraries are only missed where they are called.
            found.attend(1, 64, PAGE)(pool.tensor((1, 64, WIDTH), 0, torch.bfloat16), 0)
        except Exception as error:  # whatever a library of another version raises
            missing.append(f"{kind.name}: {type(error).__name__}: {error}")
        else:
            return found, missing
    return Torch(pool, device), missing

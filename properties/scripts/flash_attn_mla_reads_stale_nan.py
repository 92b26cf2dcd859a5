"""FLASH_ATTN_MLA's kernel reads a block to its end: what another request left there shows.

Seen in vLLM 0.32.0 on an H200. Needs a Hopper GPU. With more than 64 rows a request (tokens times
heads, which DCP makes those of a group) and blocks of 64 tokens, the last block is read whole, and
what is behind the sequence is multiplied by 0: NaN stays NaN. vLLM zeroes its cache once, at start.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch
from vllm.v1.attention.backends.fa_utils import flash_attn_varlen_func

L, R, KEYS = 512, 64, 44


def attend(heads: int, block: int, behind: float) -> torch.Tensor:
    """One query token over 44 keys, in blocks that end with ``behind``."""
    cache = torch.full((-(-KEYS // block), block, 1, L + R), behind, dtype=torch.bfloat16).cuda()
    generator = torch.Generator().manual_seed(1)
    cache.view(-1, L + R)[:KEYS] = torch.randn(KEYS, L + R, generator=generator).cuda()
    query = torch.randn(1, heads, L + R, generator=generator).bfloat16().cuda()
    out: torch.Tensor = flash_attn_varlen_func(
        q=query[..., L:],
        k=cache[..., L:],
        v=cache[..., :L],
        q_v=query[..., :L],
        max_seqlen_q=1,
        cu_seqlens_q=torch.tensor([0, 1], dtype=torch.int32, device="cuda"),
        max_seqlen_k=KEYS,
        seqused_k=torch.tensor([KEYS], dtype=torch.int32, device="cuda"),
        block_table=torch.arange(len(cache), dtype=torch.int32, device="cuda")[None],
        softmax_scale=192**-0.5,
        causal=True,
        fa_version=3,
    )
    return out


for heads in (64, 128):
    for block in (16, 64):
        clean, stale = attend(heads, block, 0.0), attend(heads, block, torch.nan)
        print(f"{heads} heads, blocks of {block}: expected True, got {torch.equal(clean, stale)}")

"""FLASHMLA's kernel for float8 caches crashes where no request of a batch has a key.

Seen in vLLM 0.32.0 on an H200. Needs a Hopper GPU. Under DCP a rank has no key of a short request,
with an interleave of 64 of none below 65 tokens: a batch of these ends the engine.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch
from vllm.v1.attention.ops.flashmla import flash_mla_with_kvcache_fp8, get_mla_metadata_dense_fp8

HEADS, WIDTH = 4, 576


def attend(lengths: list[int]) -> torch.Tensor:
    """One query token a request, over so many keys each."""
    lens = torch.tensor(lengths, dtype=torch.int32, device="cuda")
    cache = torch.zeros(8, 64, 1, WIDTH, device="cuda").to(torch.float8_e4m3fn)
    query = torch.ones(len(lengths), 1, HEADS, WIDTH, device="cuda").to(torch.float8_e4m3fn)
    schedule, splits = get_mla_metadata_dense_fp8(lens, HEADS, 1)
    one = torch.ones(1, device="cuda")
    out, _ = flash_mla_with_kvcache_fp8(
        q=query,
        k_cache=cache,
        block_table=torch.zeros(len(lengths), 1, dtype=torch.int32, device="cuda"),
        cache_seqlens=lens,
        head_dim_v=512,
        tile_scheduler_metadata=schedule,
        num_splits=splits,
        softmax_scale=192**-0.5,
        causal=True,
        descale_q=one,
        descale_k=one,
    )
    torch.cuda.synchronize()
    return out


for lengths in ([5, 0], [0], [0, 0]):
    try:
        got = f"an output of {tuple(attend(lengths).shape)}"
    except RuntimeError as error:
        got = str(error).splitlines()[0]
    print(f"{lengths} keys: expected an output, got {got}")

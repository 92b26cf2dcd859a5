"""FLASHMLA is offered for float16 with a float8 cache, and fails in its first decode.

Seen in vLLM 0.32.0 on an H200. Needs a Hopper GPU.
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch
from vllm.platforms import current_platform
from vllm.v1.attention.backends.mla.flashmla import FlashMLABackend
from vllm.v1.attention.ops.flashmla import flash_mla_with_kvcache_fp8, get_mla_metadata_dense_fp8

reasons = FlashMLABackend.validate_configuration(
    head_size=576,
    dtype=torch.float16,
    kv_cache_dtype="fp8",
    block_size=64,
    use_mla=True,
    has_sink=False,
    use_sparse=False,
    use_mm_prefix=False,
    use_per_head_quant_scales=False,
    device_capability=current_platform.get_device_capability(),
    attn_type="decoder",
)
print(f"reasons not to take float16 with a float8 cache: expected some, got {reasons}")
lens = torch.tensor([5], dtype=torch.int32, device="cuda")
# A layer's output is rounded to the default dtype, as vLLM's loader leaves it.
torch.set_default_dtype(torch.float16)
schedule, splits = get_mla_metadata_dense_fp8(lens, 4, 1)
out, _ = flash_mla_with_kvcache_fp8(
    q=torch.ones(1, 1, 4, 576, device="cuda").to(torch.float8_e4m3fn),
    k_cache=torch.zeros(2, 64, 1, 576, device="cuda").to(torch.float8_e4m3fn),
    block_table=torch.zeros(1, 1, dtype=torch.int32, device="cuda"),
    cache_seqlens=lens,
    head_dim_v=512,
    tile_scheduler_metadata=schedule,
    num_splits=splits,
    softmax_scale=192**-0.5,
    causal=True,
    descale_q=torch.ones(1, device="cuda", dtype=torch.float32),
    descale_k=torch.ones(1, device="cuda", dtype=torch.float32),
)
print(f"dtype of the output: expected torch.float16, got {out.dtype}")
try:
    torch.bmm(out[0].transpose(0, 1), torch.ones(4, 512, 128, device="cuda"))
except RuntimeError as error:
    print(f"its product with W_UV: expected an output, got {error}")

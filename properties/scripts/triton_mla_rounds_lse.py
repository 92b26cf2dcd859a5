"""TRITON_MLA rounds the log-sum-exp to the dtype of the query before shards are merged.

Expected: a float32 log-sum-exp, and a merge as exact as the float16 outputs allow.
Seen in vLLM 0.26.0 to 0.33.0: the log-sum-exp is float16 (bfloat16) like the query. Where it is
about 50, float16 resolves 1/32 and bfloat16 1/4, so a shard's weight is off by up to 1.6 % (12 %).

Needs torch and vLLM 0.26.0 to 0.33.0, no GPU:  python triton_mla_rounds_lse.py
"""

import inspect
import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
from types import SimpleNamespace

import torch
import vllm.platforms
from triton.runtime.interpreter import InterpretedFunction
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.v1.attention.backends.mla.triton_mla import TritonMLAImpl

# vLLM's launcher asks for what an interpreted kernel does not have.
InterpretedFunction.constexprs = property(
    lambda kernel: [
        at
        for at, one in enumerate(inspect.signature(kernel.fn).parameters.values())
        if "constexpr" in str(one.annotation)
    ]
)

RANK, ROPE, KEYS, HEADS = 16, 16, 4, 2
with set_current_vllm_config(VllmConfig()):
    impl = TritonMLAImpl(
        HEADS,
        RANK + ROPE,
        1.0,
        1,
        None,
        None,
        "auto",
        None,
        "decoder",
        None,
        q_lora_rank=None,
        kv_lora_rank=RANK,
        qk_nope_head_dim=8,
        qk_rope_head_dim=ROPE,
        qk_head_dim=8 + ROPE,
        v_head_dim=8,
        kv_b_proj=None,
    )
torch.manual_seed(0)
q = torch.randn(1, HEADS, RANK + ROPE).half()
common = torch.randn(1, KEYS, RANK + ROPE)
# Every score is about 50: a part that all keys share, along each head's query.
common += 50 * torch.linalg.pinv(q[0].float()).sum(dim=1)
# The shards hold keys that score alike and values that differ: their difference is orthogonal to
# the queries.
apart = torch.linalg.svd(q[0, :, :RANK].float()).Vh[-1]
caches = [(common + 0.02 * torch.randn(1, KEYS, RANK + ROPE)).half() for _ in range(2)]
caches[1][..., :RANK] += 8 * apart.half()
scale = torch.ones(())
metadata = SimpleNamespace(
    max_seq_len=KEYS,
    causal=True,
    decode=SimpleNamespace(
        block_table=torch.zeros(1, 1, dtype=torch.int32),
        seq_lens=torch.tensor([KEYS], dtype=torch.int32),
    ),
)
layer = SimpleNamespace(_k_scale=scale, _q_scale=scale)
partial = [impl.forward_mqa(q, cache, metadata, layer) for cache in caches]
outs = torch.stack([out.double() for out, _ in partial])
returned = torch.stack([lse.double() for _, lse in partial])
keys = torch.stack(caches).double()[:, 0]
exact = torch.einsum("hw,nkw->nhk", q[0].double(), keys).logsumexp(-1).unsqueeze(1)
weights = [lse.softmax(dim=0) for lse in (returned, exact)]
error = (weights[0] / weights[1] - 1).abs().max().item()
merged = [(outs * weight.unsqueeze(-1)).sum(dim=0) for weight in weights]
change = (merged[0] - merged[1]).abs().max().item()
dtype = partial[0][1].dtype
print(f"log-sum-exp of about {exact.mean().item():.1f} is returned as {dtype}")
print(f"a shard's weight is off by {error:.2%}, the merged output by {change:.1e}")
raise SystemExit(dtype != torch.float32)

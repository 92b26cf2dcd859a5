"""The all-gather merge weighs each shard by the merged log-sum-exp after that was rounded.

Expected: two shards of the same log-sum-exp count one half each, whatever it is: only the
difference of the two matters, and that is 0.
Seen in vLLM 0.32.0: the kernel subtracts the largest log-sum-exp, adds it back, rounds
to float32, and takes each shard's weight from the distance to that. The weights are off by the
rounding of the log-sum-exp itself: in the third digit where scores are near the largest float16
number, and from 2**24 on both shards count in full, which doubles the output.
"""

import inspect
import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}

import torch
import vllm.platforms
from triton.runtime.interpreter import InterpretedFunction
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
try:
    from vllm.v1.attention.ops.dcp import correct_attn_out
except ImportError:
    from vllm.v1.attention.ops.common import correct_attn_out

# vLLM's launcher asks for what an interpreted kernel does not have.
InterpretedFunction.constexprs = property(
    lambda kernel: [
        at
        for at, one in enumerate(inspect.signature(kernel.fn).parameters.values())
        if "constexpr" in str(one.annotation)
    ]
)

worst = 0.0
for lse in (0.0, 1e3, 60_000.0, 1e8):
    lses = torch.full((2, 1, 2), lse)
    weights = [correct_attn_out(torch.ones(1, 2, 16), lses, rank, None)[0] for rank in (0, 1)]
    total = sum(weight[0, 0, 0].item() for weight in weights)
    worst = max(worst, abs(total - 1))
    print(f"two shards, both of log-sum-exp {lse:g}: weights of {total:.6f} where 1 is right")
raise SystemExit(worst > 1e-4)

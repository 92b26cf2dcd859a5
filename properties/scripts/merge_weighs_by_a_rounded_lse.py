"""The merges weigh each shard by the merged log-sum-exp after that was rounded.

Expected: two shards of the same log-sum-exp count one half each, whatever it is: only the
difference of the two matters, and that is 0.
Seen in vLLM 0.26.0 to 0.33.0: the kernels subtract the largest log-sum-exp, add it back, round
to float32, and take each shard's weight from the distance to that. The weights are off by the
rounding of the log-sum-exp itself: in the third digit where scores are near the largest float16
number, and from 2**24 on both shards count in full, which doubles the output.

Needs torch and vLLM 0.26.0 to 0.33.0, no GPU:  python merge_weighs_by_a_rounded_lse.py
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
    from vllm.v1.attention.ops.dcp import _dcp_a2a_unpack_combine, correct_attn_out
except ImportError:
    from vllm.v1.attention.ops.common import correct_attn_out
    from vllm.v1.attention.ops.dcp_alltoall import _dcp_a2a_unpack_combine

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
    # What a rank receives from two: outputs of 1, each with its log-sum-exp behind it.
    received = torch.ones(2, 1, 2, 17)
    received[..., 16] = lse
    by_a2a = _dcp_a2a_unpack_combine(received, 16, 1, False, True)[0, 0, 0].item()
    worst = max(worst, abs(total - 1), abs(by_a2a - 1))
    print(
        f"two shards, both of log-sum-exp {lse:g}: weights of {total:.6f} by all-gather and "
        f"{by_a2a:.6f} by all-to-all, where 1 is right"
    )
raise SystemExit(worst > 1e-4)

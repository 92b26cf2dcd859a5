"""The all-gather merge cannot run for a DCP group whose size is no power of two.

Expected: attention merged over three ranks, or a refusal when the model is configured.
Seen in vLLM 0.26.0 to 0.33.0: tensor_parallel_size 6 with decode_context_parallel_size 3 is
accepted, and the first decode step fails as Triton builds the kernel: it spans the ranks with an
arange, which must be a power of two there.

Needs torch and vLLM 0.26.0 to 0.33.0, no GPU:  python merge_for_three_ranks.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
import inspect

import torch
from triton.runtime.interpreter import InterpretedFunction
from vllm.config import ParallelConfig

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

failed = []
for ranks in (2, 3, 4, 6):
    ParallelConfig(tensor_parallel_size=2 * ranks, decode_context_parallel_size=ranks)
    out, lses = torch.ones(1, ranks, 16), torch.zeros(ranks, 1, ranks)
    try:
        correct_attn_out(out, lses, 0, None)
    except Exception as error:
        failed.append(ranks)
        print(f"dcp {ranks}: accepted, then {type(error).__name__}: {error}")
    else:
        print(f"dcp {ranks}: accepted, the weight of rank 0 is {out[0, 0, 0].item():.3f}")
raise SystemExit(bool(failed))

"""The all-to-all merge returns NaN where a shard without keys left NaN in its output.

Expected: a shard whose log-sum-exp is minus infinity contributes nothing.
Seen in vLLM 0.26.0 and 0.27.1: its weight of 0 is multiplied with its output. 0.28.0 and later
are right.

Needs torch and vLLM, no GPU:  python all_to_all_merge_of_an_empty_shard.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
import torch

try:
    from vllm.v1.attention.ops import dcp as merges
except ImportError:
    from vllm.v1.attention.ops import dcp_alltoall as merges

outputs = torch.stack([torch.ones(1, 1, 16), torch.full((1, 1, 16), torch.nan)])
lses = torch.tensor([0.0, -torch.inf]).view(2, 1, 1)
received = torch.cat([outputs, lses.unsqueeze(-1)], dim=-1)
merged = merges._dcp_a2a_unpack_combine(received, 16, 1, False, True)
print(f"1 from the shard with keys, NaN from the one without: {merged[0, 0, 0].item()}")
raise SystemExit(not merged.isfinite().all())

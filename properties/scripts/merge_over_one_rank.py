"""The all-gather merges fail, or return half of a batch, where the DCP group has one rank.

Expected: the only partial output is the merged one.
Seen in vLLM 0.26.0 to 0.33.0: their common part returns the output alone where its callers take
an output and a log-sum-exp apart, so two rows are taken for that pair. The all-to-all merge is
right. vLLM's MLA layer does not merge over one rank; other callers may.

Needs torch and vLLM 0.26.0 to 0.33.0, no GPU:  python merge_over_one_rank.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from types import SimpleNamespace

import torch

try:
    from vllm.v1.attention.ops import dcp as merges
except ImportError:
    from vllm.v1.attention.ops import common as merges

group = SimpleNamespace(
    world_size=1,
    rank_in_group=0,
    reduce_scatter=lambda tensor, dim: tensor,
    all_reduce=lambda tensor: tensor,
)
wrong = 0
for name in ("cp_lse_ag_out_rs", "cp_lse_ag_out_ar"):
    for rows in (1, 2, 3):
        out, lse = torch.randn(rows, 4, 8), torch.randn(rows, 4)
        try:
            merged = getattr(merges, name)(out, lse, group)
        except ValueError as error:
            wrong += 1
            print(f"{name}, {rows} row(s): ValueError: {error}")
        else:
            wrong += merged.shape != out.shape
            print(f"{name}, {rows} row(s): {list(out.shape)} became {list(merged.shape)}")
raise SystemExit(bool(wrong))

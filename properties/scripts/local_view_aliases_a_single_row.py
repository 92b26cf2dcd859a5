"""DCPGroupColumnParallelLinear._local_view aliases the group output for a batch of one token.

A slice of the heads of a single row is contiguous already, so ``.contiguous()`` returns the
slice itself. Writing to the group query afterwards changes the local query, and the other way
round, for one token and for no other batch.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python local_view_aliases_a_single_row.py
"""

import os
from types import SimpleNamespace

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import torch
from vllm.model_executor.layers.linear import DCPGroupColumnParallelLinear

layer = SimpleNamespace(group_size=2, rank_in_group=0)
aliased = {}
for rows in (1, 2):
    group = torch.zeros(rows, 4, 3)
    local = DCPGroupColumnParallelLinear._local_view(layer, group)
    group.fill_(1.0)
    aliased[rows] = bool((local == 1.0).all())
    print(f"{rows} row(s): expected local 0.0, got {local.flatten()[0].item()}")
raise SystemExit(1 if any(aliased.values()) else 0)

"""A sharded state cannot be saved where a weight is transposed, or a part of a larger one.

Post-load processing leaves float8 weights with one scale, and int8 weights, as weight.t(), and an
MLA layer's W_UV and W_UK_T, parameters of every such model, as parts of kv_b_proj's heads.
Expected: save_sharded_state writes them, and a fresh layer loads them. Got: RuntimeError, since the
search for tensors that share memory flattens each by view(-1), which neither of them allows
(vllm-project/vllm pull request 48357).

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python transposed_weight_cannot_be_saved.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
import torch
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader

wrong = 0
for what, weight in (
    ("as loaded", torch.ones(3, 2)),
    ("transposed, as after loading", torch.ones(3, 2).t()),
    ("W_UV of an MLA layer", torch.ones(4, 2, 3).split([1, 2], dim=-1)[1].transpose(0, 1)),
):
    try:
        kept = ShardedStateLoader._filter_subtensors({"q_b_proj.weight": weight})
        print(f"{what}: keeps {list(kept)}")
    except RuntimeError as error:
        wrong += 1
        print(f"{what}: expected to keep the weight, got RuntimeError: {error}")
raise SystemExit(wrong)

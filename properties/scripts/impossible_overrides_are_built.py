"""ColumnParallelLinear builds shards that do not exist, or fails without saying what is wrong.

Expected: a ValueError that names the values, before weights are allocated. Got: layers of shard
-1 of 2, which loads the last rows, of shard 2 of 2, which fails as it loads, and of a rank or a
size alone, the other being the process's; for a size of 0 a ZeroDivisionError; for one that does
not divide the output an AssertionError, which python -O leaves out; for a negative one either
that, or torch's error of a tensor of negative size.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python impossible_overrides_are_built.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.linear import ColumnParallelLinear

parallel_state._TP = mock.Mock(world_size=2, rank_in_group=0)
# Its entries are the numbers of the rows.
weight = torch.arange(8.0).unsqueeze(-1).expand(8, 3)
wrong = False
for tp_rank, tp_size in (
    (-1, 2),
    (2, 2),
    (0, None),
    (None, 2),
    (0, 0),
    (0, -2),
    (0, -3),
    (0, 3),
):
    what = f"tp_rank={tp_rank} tp_size={tp_size}"
    try:
        with set_current_vllm_config(VllmConfig()):
            layer = ColumnParallelLinear(
                3,
                8,
                bias=False,
                params_dtype=torch.float32,
                tp_rank=tp_rank,
                tp_size=tp_size,
            )
    except Exception as error:
        values = {str(one) for one in (tp_rank, tp_size) if one is not None}
        refused = isinstance(error, ValueError) and all(one in str(error) for one in values)
        wrong |= not refused
        expected = "" if refused else "expected a ValueError that names the values, got "
        print(f"{what}: {expected}{type(error).__name__}: {error}")
        continue
    wrong = True
    try:
        layer.weight.weight_loader(layer.weight, weight)
        got = f"which loads rows {layer.weight[:, 0].tolist()}"
    except RuntimeError as error:
        got = f"which fails as it loads: {error}"
    print(f"{what}: expected a ValueError that names the values, got a layer, {got}")
raise SystemExit(wrong)

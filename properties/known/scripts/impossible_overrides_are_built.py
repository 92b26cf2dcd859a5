"""ColumnParallelLinear builds shards that do not exist, or fails without saying what is wrong.

Expected: a ValueError that names the values, before weights are allocated. Got: layers of shard
-1 of 2, of shard 2 of 2, of a rank or a size alone, and of 4-bit weights whose packed offsets
the shard cuts in the middle of an int32; a ZeroDivisionError; an AssertionError, which python -O
leaves out.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python impossible_overrides_are_built.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from unittest import mock

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers import linear
from vllm.model_executor.parameter import PackedvLLMParameter

PARAMETER = "vllm.model_executor.parameter.get_tensor_model_parallel"
built = 0
with (
    mock.patch.object(linear, "get_tensor_model_parallel_rank", return_value=0),
    mock.patch.object(linear, "get_tensor_model_parallel_world_size", return_value=2),
    mock.patch(f"{PARAMETER}_rank", return_value=0),
    mock.patch(f"{PARAMETER}_world_size", return_value=2),
    set_current_vllm_config(VllmConfig()),
):
    for tp_rank, tp_size in ((-1, 2), (2, 2), (0, None), (None, 2), (0, 0), (0, 3)):
        try:
            linear.ColumnParallelLinear(
                3, 8, bias=False, params_dtype=torch.float32, tp_rank=tp_rank, tp_size=tp_size
            )
        except Exception as error:
            built += not isinstance(error, ValueError)
            print(f"tp_rank={tp_rank} tp_size={tp_size}: {type(error).__name__}: {error}")
        else:
            built += 1
            print(f"tp_rank={tp_rank} tp_size={tp_size}: built")

    # Offsets of 16 rows in two int32, and 4 shards of 4 rows: each takes a whole int32.
    offsets = torch.tensor([[1], [2]], dtype=torch.int32)
    for tp_rank, expected in ((0, 1), (1, 1), (2, 2), (3, 2)):
        parameter = PackedvLLMParameter(
            data=torch.zeros(1, 1, dtype=torch.int32),
            input_dim=1,
            output_dim=0,
            packed_dim=0,
            packed_factor=8,
            weight_loader=lambda *_: None,
        )
        parameter.tp_rank, parameter.tp_size = tp_rank, 4
        try:
            parameter.load_column_parallel_weight(offsets)
        except (IndexError, RuntimeError) as error:
            print(f"offsets of shard {tp_rank} of 4: {error}")
        else:
            built += parameter.item() != expected
            print(f"offsets of shard {tp_rank} of 4: int32 {parameter.item()}, not {expected}")
raise SystemExit(bool(built))

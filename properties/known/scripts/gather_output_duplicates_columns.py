"""ColumnParallelLinear gathers over the whole TP group although the override shards less often.

Rank r of 4 holds shard r // 2 of 2, as DCPGroupColumnParallelLinear does for DCP groups of two,
and gather_output is on. Expected: the 8 columns of the layer, or a refusal. Got: 16 columns,
every shard twice.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python gather_output_duplicates_columns.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from unittest import mock

import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers import linear

TP, SHARDS, ROWS, COLUMNS = 4, 2, 8, 3
weight = torch.arange(ROWS * COLUMNS, dtype=torch.float32).view(ROWS, COLUMNS)
x = torch.ones(1, COLUMNS)

with mock.patch.object(linear, "get_tensor_model_parallel_world_size", return_value=TP):
    outputs = []
    for rank in range(TP):
        with (
            mock.patch.object(linear, "get_tensor_model_parallel_rank", return_value=rank),
            mock.patch(
                "vllm.model_executor.parameter.get_tensor_model_parallel_rank", return_value=0
            ),
            mock.patch(
                "vllm.model_executor.parameter.get_tensor_model_parallel_world_size",
                return_value=TP,
            ),
            # What every rank puts into the all-gather.
            mock.patch.object(linear, "tensor_model_parallel_all_gather", lambda tensor: tensor),
            set_current_vllm_config(VllmConfig()),
        ):
            layer = linear.ColumnParallelLinear(
                COLUMNS,
                ROWS,
                bias=False,
                gather_output=True,
                params_dtype=torch.float32,
                tp_rank=rank // (TP // SHARDS),
                tp_size=SHARDS,
            )
            layer.weight.weight_loader(layer.weight, weight)
            layer.quant_method.apply = lambda layer, x, bias: x @ layer.weight.T
            outputs.append(layer(x)[0])
gathered = torch.cat(outputs, dim=-1)
print(f"expected {ROWS} columns: {(x @ weight.T).tolist()}")
print(f"got {gathered.shape[-1]} columns: {gathered.tolist()}")
raise SystemExit(gathered.shape[-1] != ROWS)

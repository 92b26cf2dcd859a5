"""A gathered output has every column several times where ranks share their shard.

Rank r of 4 holds shard r // 2 of 2: once by an override of ColumnParallelLinear, once as
DCPGroupColumnParallelLinear for DCP groups of two; gather_output is on. Expected: the 8 columns
of the layer, or a refusal. Got: 16 columns, every shard twice, as it is gathered over the whole
TP group.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python gather_output_duplicates_columns.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers import linear

TP, DCP, ROWS, COLUMNS = 4, 2, 8, 3
weight = torch.arange(ROWS * COLUMNS, dtype=torch.float32).view(ROWS, COLUMNS)
x = torch.ones(1, COLUMNS)
config = VllmConfig(
    parallel_config=ParallelConfig(tensor_parallel_size=TP, decode_context_parallel_size=DCP)
)


def gathered(cls: type[linear.ColumnParallelLinear], rank: int, **override: int) -> torch.Tensor:
    """What ``rank`` puts into the all-gather."""
    parallel_state._TP = mock.Mock(world_size=TP, rank_in_group=rank)
    with (
        set_current_vllm_config(config),
        mock.patch.object(linear, "tensor_model_parallel_all_gather", lambda tensor: tensor),
    ):
        layer = cls(
            COLUMNS, ROWS, bias=False, gather_output=True, params_dtype=torch.float32, **override
        )
        layer.weight.weight_loader(layer.weight, weight)
        layer.quant_method.apply = lambda layer, x, bias: x @ layer.weight.T
        return layer(x)[0]


wrong = False
print(f"expected {ROWS} columns: {(x @ weight.T).tolist()}")
for what, parts in (
    (
        "an override",
        lambda rank: gathered(
            linear.ColumnParallelLinear, rank, tp_rank=rank // DCP, tp_size=TP // DCP
        ),
    ),
    ("the group layer", lambda rank: gathered(linear.DCPGroupColumnParallelLinear, rank)),
):
    try:
        output = torch.cat([parts(rank) for rank in range(TP)], dim=-1)
    except (NotImplementedError, ValueError) as error:
        print(f"{what}: refused: {error}")
        continue
    wrong |= output.shape[-1] != ROWS
    print(f"{what}: got {output.shape[-1]} columns: {output.tolist()}")
raise SystemExit(wrong)

"""A shard of 4-bit weights cuts their packed offsets in the middle of an int32.

The offsets of 16 rows lie in two int32, eight in each, and 4 ranks have 4 rows each. Expected: a
ValueError that names the sizes before anything is allocated, or the offsets of a rank's own rows.
Got: layers with room for one int32 each, of which rank 1 loads the second, which has none of its
rows, and ranks 2 and 3 find none.

Needs torch and vLLM 0.27.1 to 0.33.0 with compressed-tensors, no GPU:
    python packed_offsets_are_cut.py
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
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from vllm.model_executor.layers.quantization.compressed_tensors.schemes import (
    compressed_tensors_wNa16,
)

ROWS, COLUMNS, SHARDS = 16, 8, 4
weights = {
    "num_bits": 4,
    "type": "int",
    "strategy": "group",
    "group_size": COLUMNS,
    "symmetric": False,
    "dynamic": False,
}
quantisation = CompressedTensorsConfig.from_config(
    {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}
        },
        "ignore": [],
    }
)
parallel_state._TP = mock.Mock(world_size=SHARDS, rank_in_group=0)
# The weights are created for a kernel of a GPU, which is never run.
kernel = mock.patch.object(
    compressed_tensors_wNa16,
    "choose_mp_linear_kernel",
    return_value=mock.Mock(__name__="kernel"),
)
offsets = torch.tensor([[1], [2]], dtype=torch.int32)
wrong = False
for rank, needed in enumerate((1, 1, 2, 2)):
    try:
        with set_current_vllm_config(VllmConfig()), kernel:
            layer = ColumnParallelLinear(
                COLUMNS,
                ROWS,
                bias=False,
                params_dtype=torch.float32,
                quant_config=quantisation,
                prefix="q_b_proj",
                tp_rank=rank,
                tp_size=SHARDS,
            )
    except ValueError as error:
        print(f"rank {rank} of {SHARDS}: refused: {error}")
        continue
    wrong = True
    loaded = layer.weight_zero_point
    try:
        loaded.weight_loader(loaded, offsets)
        got = f"int32 {loaded.item()} is loaded"
    except (IndexError, RuntimeError) as error:
        got = f"{type(error).__name__} as it loads: {error}"
    print(
        f"rank {rank} of {SHARDS}: expected a refusal, or offsets out of int32 {needed}; got a "
        f"layer, and {got}"
    )
raise SystemExit(wrong)

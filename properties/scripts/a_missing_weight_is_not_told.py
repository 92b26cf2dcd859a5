"""A checkpoint without a linear layer's weight is loaded without a word.

Expected: the loader's check, which raises ValueError for weights that were not initialized from
the checkpoint, names q_b_proj.weight. Got: nothing, and the weight is what the memory held before.
The check exempts every module with a quantization method, and an unquantized linear layer has one.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python a_missing_weight_is_not_told.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
from vllm.config.load import LoadConfig
from vllm.distributed import parallel_state
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.models.utils import AutoWeightsLoader

parallel_state._TP = mock.MagicMock(world_size=1, rank_in_group=0)


class Model(torch.nn.Module):
    """A model of one layer, which loads its checkpoint as vLLM's models do."""

    def __init__(self) -> None:
        super().__init__()
        self.q_b_proj = ColumnParallelLinear(4, 8, bias=False, prefix="q_b_proj")

    def load_weights(self, weights):  # type: ignore[no-untyped-def]
        """Names of what was loaded."""
        return AutoWeightsLoader(self).load_weights(weights)


vllm_config = VllmConfig(compilation_config=CompilationConfig())
model_config = mock.Mock(quantization=None, multimodal_config=None, is_moe=False)
loader = DefaultModelLoader(LoadConfig())
loader.counter_before_loading_weights = 0.0
print("loading a checkpoint without q_b_proj.weight: expected a ValueError that names it")
empty = mock.patch.object(DefaultModelLoader, "get_all_weights", return_value=iter(()))
with set_current_vllm_config(vllm_config), empty:
    try:
        loader.load_weights(Model(), model_config)
    except ValueError as error:
        print(f"  got ValueError: {error}")
        raise SystemExit("q_b_proj.weight" not in str(error)) from None
print("  got a model")
raise SystemExit(True)

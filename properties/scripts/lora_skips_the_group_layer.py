"""An adapter on a replicated query projection is left out.

vLLM's LoRA wrappers take a layer whose class is exactly ColumnParallelLinear; the class of the
DCP group's projection is derived from it. Expected: the adapter is applied, or refused with an
error. Got: no wrapper takes the layer, which vLLM's manager tells by a warning at most.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python lora_skips_the_group_layer.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from vllm.config.lora import LoRAConfig
from vllm.lora.utils import from_layer
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    DCPGroupColumnParallelLinear,
)

taken = {}
for cls in (ColumnParallelLinear, DCPGroupColumnParallelLinear):
    layer = cls.__new__(cls)
    try:
        taken[cls] = from_layer(layer, 1, LoRAConfig(max_lora_rank=8), [], None) is not layer
    except AttributeError:
        # A wrapper took the layer, which was never given any weights.
        taken[cls] = True
    print(f"{cls.__name__}: {'wrapped' if taken[cls] else 'left without its adapter'}")
raise SystemExit(not taken[DCPGroupColumnParallelLinear])

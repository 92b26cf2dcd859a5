"""kv_b_proj with static int8 activations is dequantised wrongly before MLA absorbs it.

get_and_maybe_dequant_weights runs the layer on an identity matrix. A static activation scale
rounds, or cuts off, the ones in it as if they were activations, and every derived weight is off
by the same factor. Expected: weight times scale. Got: up to half a step of the activations off,
here 1 percent; far more where their range does not reach 1.

Needs torch and vLLM with compressed-tensors, no GPU:
    python absorbed_weight_depends_on_the_activation_scale.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from types import SimpleNamespace

import torch
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    get_and_maybe_dequant_weights,
)

weight = torch.tensor([[100, -50], [25, 127]], dtype=torch.int8)
weight_scale = torch.tensor([[0.01], [0.02]])
wrong = False
for largest in (8.0, 0.5):
    input_scale = torch.tensor(largest / 127)

    def apply(
        layer: object, x: torch.Tensor, bias: None = None, scale: torch.Tensor = input_scale
    ) -> torch.Tensor:
        # What the int8 kernels compute with a static scale of the activations.
        rounded = (x / scale).round().clamp(-128, 127)
        return (rounded * scale) @ (weight.float() * weight_scale).T

    layer = SimpleNamespace(
        weight=weight, quant_method=SimpleNamespace(apply=apply), input_size_per_partition=2
    )
    got = get_and_maybe_dequant_weights(layer, out_dtype=torch.float32)
    expected = weight.float() * weight_scale
    wrong |= not torch.allclose(got, expected, rtol=1e-3)
    print(f"activations up to {largest}: expected {expected.tolist()}, got {got.tolist()}")
raise SystemExit(wrong)

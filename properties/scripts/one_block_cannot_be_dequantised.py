"""A block-wise fp8 kv_b_proj of a single block, or of a part of one, cannot be absorbed.

weight_block_size comes from the checkpoint as a list, and vLLM asks it for is_per_tensor() where
there is one scale; blocks that reach beyond the weight fail an assertion. Expected: weight times
the scale of its block. Got: AttributeError and AssertionError, after the weights were loaded.

Needs torch and vLLM, no GPU:  python one_block_cannot_be_dequantised.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
import torch
from vllm.model_executor.layers.quantization.utils.quant_utils import scaled_dequantize

failed = False
for rows, columns, block in ((4, 4, [4, 4]), (4, 6, [4, 4])):
    weight = torch.ones(rows, columns).to(torch.float8_e4m3fn)
    scales = torch.full((-(-rows // block[0]), -(-columns // block[1])), 2.0)
    try:
        scaled_dequantize(weight, scales, group_shape=block)
        print(f"{rows} x {columns} in blocks of {block}: dequantised")
    except (AttributeError, AssertionError) as error:
        failed = True
        print(f"{rows} x {columns} in blocks of {block}: {type(error).__name__}: {error}")
raise SystemExit(failed)

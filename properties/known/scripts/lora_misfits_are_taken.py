"""An adapter that does not fit its layer is put on all the same, in part.

set_lora copies an adapter into the corner of a buffer that has its shape. Expected: an adapter
whose matrices have other extents than the layer is refused. Got: one with fewer columns, fewer
rows or matrices of different ranks is taken, what it lacks stays 0, and one that is larger ends in
torch's RuntimeError, once the adapter before it was taken off.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python lora_misfits_are_taken.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
import torch
from vllm.lora.layers import ColumnParallelLinearWithLoRA

ROWS, COLUMNS, RANK, MAX_RANK = 6, 4, 2, 8
wrong = 0
for what, a, b in (
    ("one column", (RANK, 1), (ROWS, RANK)),
    ("a column too few", (RANK, COLUMNS - 1), (ROWS, RANK)),
    ("a column too many", (RANK, COLUMNS + 1), (ROWS, RANK)),
    ("a row too few", (RANK, COLUMNS), (ROWS - 1, RANK)),
    ("matrices of ranks 2 and 3", (RANK, COLUMNS), (ROWS, RANK + 1)),
):
    layer = ColumnParallelLinearWithLoRA.__new__(ColumnParallelLinearWithLoRA)
    torch.nn.Module.__init__(layer)
    layer.tp_size = layer.n_slices = 1
    layer.lora_a_stacked = (torch.full((1, 1, MAX_RANK, COLUMNS), 7.0),)
    layer.lora_b_stacked = (torch.full((1, 1, ROWS, MAX_RANK), 7.0),)
    try:
        layer.set_lora(0, torch.ones(a), torch.ones(b))
        got = "taken"
    except ValueError as error:
        print(f"{what}: refused: {error}")
        continue
    except RuntimeError as error:
        before = "kept" if (layer.lora_b_stacked[0] == 7).all() else "lost"
        got = f"RuntimeError: {error}; the adapter before it is {before}"
    wrong += 1
    print(f"{what}: expected a ValueError, got: {got}")
raise SystemExit(wrong > 0)

"""An adapter that does not fit its layer is put on all the same, in part.

set_lora copies an adapter into the corner of a buffer that has its shape. Expected: an adapter
whose matrices have other extents than the layer is refused. Got: one with fewer columns, fewer
rows or matrices of different ranks is taken, and what it lacks stays 0; where there are several
ranks, one with more rows is taken and cut to a rank's share; and any other that is larger ends in
torch's RuntimeError, once the adapter before it was taken off.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python lora_misfits_are_taken.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
import torch
from vllm.lora.layers import ColumnParallelLinearWithLoRA

# ROWS of each rank.
ROWS, COLUMNS, RANK, MAX_RANK = 6, 4, 2, 8
wrong = False
for what, tp, a, b in (
    ("one column", 1, (RANK, 1), (ROWS, RANK)),
    ("a column too few", 1, (RANK, COLUMNS - 1), (ROWS, RANK)),
    ("a column too many", 1, (RANK, COLUMNS + 1), (ROWS, RANK)),
    ("a row too few", 1, (RANK, COLUMNS), (ROWS - 1, RANK)),
    ("a row too many", 1, (RANK, COLUMNS), (ROWS + 1, RANK)),
    ("a row too many for 2 ranks", 2, (RANK, COLUMNS), (2 * ROWS + 1, RANK)),
    ("matrices of ranks 2 and 3", 1, (RANK, COLUMNS), (ROWS, RANK + 1)),
):
    layer = ColumnParallelLinearWithLoRA.__new__(ColumnParallelLinearWithLoRA)
    torch.nn.Module.__init__(layer)
    layer.tp_size, layer.tp_rank, layer.n_slices = tp, 0, 1
    layer.output_size, layer.is_merged_col_linear = ROWS, False
    layer.lora_a_stacked = (torch.full((1, 1, MAX_RANK, COLUMNS), 7.0),)
    layer.lora_b_stacked = (torch.full((1, 1, ROWS, MAX_RANK), 7.0),)
    try:
        layer.set_lora(0, torch.ones(a), torch.ones(b))
        rank = max(a[0], b[1])
        lacking = layer.lora_a_stacked[0][0, 0, :rank], layer.lora_b_stacked[0][0, 0, :, :rank]
        zeros = sum(int((matrix == 0).sum()) for matrix in lacking)
        got = f"taken, {zeros} entries stay 0" if zeros else f"taken, {ROWS} rows of {b[0]}"
    except ValueError as error:
        print(f"{what}: refused: {error}")
        continue
    except RuntimeError as error:
        before = "kept" if (layer.lora_b_stacked[0] == 7).all() else "lost"
        got = f"RuntimeError: {error}; the adapter before it is {before}"
    wrong = True
    print(f"{what}: expected a ValueError, got: {got}")
raise SystemExit(wrong)

"""Activations rounded to the numbers that a quantised product multiplies.

Each function returns what the rounded numbers stand for, in float32: a product of these is the
quantised product with its scales applied, up to the order of summation.
"""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
INT8 = torch.iinfo(torch.int8)
# Keeps the scale of a row of zeros a number that can be divided by.
SMALLEST_SCALE = torch.finfo(torch.float32).tiny


def _scale_of(x: torch.Tensor, largest: float) -> torch.Tensor:
    """One scale for each row, ``[rows, 1]``: its largest magnitude maps to ``largest``."""
    return (x.abs().amax(1, keepdim=True) / largest).clamp(min=SMALLEST_SCALE)


def round_to_fp8(x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
    """Round to float8_e4m3fn times a scale.

    Args:
        x: ``[rows, in]``.
        scale: ``[1]``, of every element; values beyond its range saturate. None takes one of
            each row from the values themselves.
    """
    values = x.float()
    if scale is None:
        scale = _scale_of(values, FP8_MAX)
    return (values / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8).float() * scale


def round_groups_to_fp8(x: torch.Tensor, group_size: int) -> torch.Tensor:
    """Round to float8_e4m3fn, with a scale for each ``group_size`` inputs of each row."""
    groups = x.float().split(group_size, dim=1)
    return torch.cat([round_to_fp8(group) for group in groups], dim=1)


def round_to_int8(
    x: torch.Tensor, scale: torch.Tensor | None = None, zero_point: torch.Tensor | None = None
) -> torch.Tensor:
    """Round to int8 times a scale, above an offset.

    Args:
        x: ``[rows, in]``.
        scale: ``[1]``, of every element; values beyond its range saturate. None takes one of
            each row from the values themselves.
        zero_point: ``[1]`` int8, the integer that stands for 0; None is 0.
    """
    values = x.float()
    if scale is None:
        scale = _scale_of(values, INT8.max)
    offset = 0.0 if zero_point is None else zero_point.float()
    return ((values / scale).round() + offset).clamp(INT8.min, INT8.max).sub(offset) * scale

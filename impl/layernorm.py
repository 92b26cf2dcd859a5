"""Normalisation of the compressed query and key."""

from __future__ import annotations

import torch
from torch import nn


class RMSNorm(nn.Module):
    """Root mean square normalisation over the last axis, computed in float32.

    Args:
        hidden_size: Width of the last axis.
        eps: Added to the mean of squares.
    """

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size), requires_grad=False)
        self.variance_epsilon = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x / sqrt(mean(x^2) + eps) * weight``, in the dtype of ``x``."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * scale).to(x.dtype) * self.weight

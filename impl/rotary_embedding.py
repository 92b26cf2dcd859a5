"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    """Rotates pairs ``(2 i, 2 i + 1)`` by ``position * base ** (-2 i / rotary_dim)``.

    Args:
        rotary_dim: Width of the last axis, even.
        base: Of the frequencies.

    Raises:
        ValueError: rotary_dim is odd.
    """

    def __init__(self, rotary_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        if rotary_dim % 2:
            raise ValueError(f"rotary_dim is {rotary_dim}, but pairs need an even one")
        self.rotary_dim = rotary_dim
        self.base = base

    def forward(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate ``query`` and ``key``, both ``[rows, heads, rotary_dim]``.

        Args:
            positions: ``[rows]`` int64.
            query: Of any number of heads.
            key: Likewise, of its own number.
        """
        pair = torch.arange(0, self.rotary_dim, 2, dtype=torch.float32, device=positions.device)
        angles = positions.float().outer(self.base ** -(pair / self.rotary_dim)).unsqueeze(1)
        cos, sin = angles.cos(), angles.sin()
        return self._rotate(query, cos, sin), self._rotate(key, cos, sin)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        rotated = first * cos - second * sin, second * cos + first * sin
        return torch.stack(rotated, dim=-1).flatten(-2).to(x.dtype)

"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    """Rotates pairs ``(2 i, 2 i + 1)`` by ``position * base ** (-2 i / rotary_dim)``.

    Args:
        rotary_dim: Width of the last axis, even.
        max_position_embeddings: One past the largest position.
        base: Of the frequencies.

    Attributes:
        cos_sin_cache: ``[max_position_embeddings, rotary_dim]`` float32, cosines first.

    Raises:
        ValueError: rotary_dim is odd.
    """

    cos_sin_cache: torch.Tensor

    def __init__(
        self,
        rotary_dim: int,
        max_position_embeddings: int,
        base: float = 10000.0,
    ) -> None:
        super().__init__()
        if rotary_dim % 2:
            raise ValueError(f"rotary_dim is {rotary_dim}, but pairs need an even one")
        inv_freq = base ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim)
        angles = torch.arange(max_position_embeddings, dtype=torch.float32).outer(inv_freq)
        cache = torch.cat([angles.cos(), angles.sin()], dim=-1)
        self.register_buffer("cos_sin_cache", cache, persistent=False)

    def forward(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate ``query`` and ``key``, both ``[rows, heads, rotary_dim]``.

        Args:
            positions: ``[rows]`` int64.
            query: Of any number of heads.
            key: Likewise, of its own number.
        """
        cos, sin = self.cos_sin_cache[positions].unsqueeze(1).chunk(2, dim=-1)
        return self._rotate(query, cos, sin), self._rotate(key, cos, sin)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        rotated = first * cos - second * sin, second * cos + first * sin
        return torch.stack(rotated, dim=-1).flatten(-2).to(x.dtype)

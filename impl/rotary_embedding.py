"""Rotary position embedding, plain or with YaRN's scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    """Rotates pairs ``(2 i, 2 i + 1)`` by ``position * base ** (-2 i / rotary_dim)``.

    Args:
        rotary_dim: Width of the last axis, even.
        base: Of the frequencies.

    Attributes:
        magnitude: Factor of what is rotated.
        score_scale: Factor of the softmax scale that belongs to it.

    Raises:
        ValueError: rotary_dim is odd.
    """

    magnitude = 1.0
    score_scale = 1.0

    def __init__(self, rotary_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        if rotary_dim % 2:
            raise ValueError(f"rotary_dim is {rotary_dim}, but pairs need an even one")
        self.rotary_dim = rotary_dim
        self.base = base

    def frequencies(self, device: torch.device) -> torch.Tensor:
        """``[rotary_dim / 2]`` float32."""
        pair = torch.arange(0, self.rotary_dim, 2, dtype=torch.float32, device=device)
        return self.base ** -(pair / self.rotary_dim)

    def forward(
        self, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate ``query`` and ``key``, both ``[rows, heads, rotary_dim]``.

        Args:
            positions: ``[rows]`` int64.
            query: Of any number of heads.
            key: Likewise, of its own number.
        """
        frequencies = self.frequencies(positions.device)
        angles = positions.float().outer(frequencies).unsqueeze(1)
        cos, sin = angles.cos() * self.magnitude, angles.sin() * self.magnitude
        return self._rotate(query, cos, sin), self._rotate(key, cos, sin)

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        rotated = first * cos - second * sin, second * cos + first * sin
        return torch.stack(rotated, dim=-1).flatten(-2).to(x.dtype)


class YarnRotaryEmbedding(RotaryEmbedding):
    """YaRN: slow frequencies are divided by ``factor``, fast ones kept, those between blended.

    Args:
        rotary_dim: Width of the last axis, even.
        base: Of the frequencies.
        factor: By which the context is stretched.
        original_max_position_embeddings: Tokens of the context before.
        beta_fast: Rotations over that context above which a frequency is kept.
        beta_slow: Rotations below which one is divided.
        mscale: Correction of what is rotated, divided by that of mscale_all_dim.
        mscale_all_dim: Correction of query and key, and so squared in the softmax scale.

    Raises:
        ValueError: rotary_dim is odd.
    """

    def __init__(
        self,
        rotary_dim: int,
        base: float,
        factor: float,
        original_max_position_embeddings: int,
        beta_fast: int,
        beta_slow: int,
        mscale: float,
        mscale_all_dim: float,
    ) -> None:
        super().__init__(rotary_dim, base)
        self.factor = factor
        self.original_max_position_embeddings = original_max_position_embeddings
        self.beta_fast = beta_fast
        self.beta_slow = beta_slow
        correction = yarn_get_mscale(factor, mscale_all_dim)
        self.magnitude = yarn_get_mscale(factor, mscale) / correction
        self.score_scale = correction**2

    def frequencies(self, device: torch.device) -> torch.Tensor:
        """``[rotary_dim / 2]`` float32."""
        kept = super().frequencies(device)
        low = max(math.floor(self._pair_of(self.beta_fast)), 0)
        high = min(math.ceil(self._pair_of(self.beta_slow)), self.rotary_dim - 1)
        pair = torch.arange(len(kept), dtype=torch.float32, device=device)
        # A range of one pair is a step.
        divided = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)
        return kept / self.factor * divided + kept * (1 - divided)

    def _pair_of(self, rotations: int) -> float:
        """Index of the pair that turns so often over the original context, not rounded."""
        wavelength = self.original_max_position_embeddings / (rotations * 2 * math.pi)
        return self.rotary_dim * math.log(wavelength) / (2 * math.log(self.base))


def yarn_get_mscale(factor: float, mscale: float) -> float:
    """What a magnitude is multiplied by in a context stretched by ``factor``."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def get_rope(rotary_dim: int, rope_parameters: Mapping[str, Any]) -> RotaryEmbedding:
    """The embedding that ``rope_parameters`` of a checkpoint's configuration ask for.

    Raises:
        NotImplementedError: They ask for another type than ``default`` or ``yarn``.
        ValueError: rotary_dim is odd.
    """
    kind, base = rope_parameters["rope_type"], rope_parameters["rope_theta"]
    if kind == "default":
        return RotaryEmbedding(rotary_dim, base)
    if kind != "yarn":
        raise NotImplementedError(
            f"rope_type {kind!r} is not supported: use a checkpoint with 'default' or 'yarn'"
        )
    return YarnRotaryEmbedding(
        rotary_dim,
        base,
        rope_parameters["factor"],
        rope_parameters["original_max_position_embeddings"],
        rope_parameters.get("beta_fast", 32),
        rope_parameters.get("beta_slow", 1),
        rope_parameters.get("mscale", 1.0),
        rope_parameters.get("mscale_all_dim", 0.0),
    )

"""Prefill attention in torch operators, on any device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class PartialAttention:
    """Attention over some of the keys.

    Attributes:
        out: ``[rows, H, V]`` float32.
        lse: ``[rows, H]`` float32, to base e.
    """

    out: torch.Tensor
    lse: torch.Tensor

    def merged_with(self, other: PartialAttention) -> PartialAttention:
        """Attention over the keys of both, which share none. One of them has keys."""
        lse = torch.logaddexp(self.lse, other.lse)
        mine, others = (self.lse - lse).exp(), (other.lse - lse).exp()
        return PartialAttention(
            self.out * mine.unsqueeze(-1) + other.out * others.unsqueeze(-1), lse
        )


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> PartialAttention:
    """Multi-head attention of one request.

    Args:
        q: ``[rows, H, P + R]``.
        k: ``[keys, H, P + R]``.
        v: ``[keys, H, V]``.
        scale: Softmax scale.
        causal: Row i attends the keys 0 .. i, else every key.
    """
    scores = q.float().transpose(0, 1) @ k.float().permute(1, 2, 0) * scale
    if causal:
        rows = torch.arange(q.shape[0], device=q.device)
        future = rows.unsqueeze(0) > rows.unsqueeze(1)
        scores = scores.masked_fill(future, -math.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.unsqueeze(-1)).exp()
    out = weights @ v.float().transpose(0, 1)
    return PartialAttention(out.transpose(0, 1), lse.T)

"""What one measurement is of."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmarks.cost.pool import sets_for

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


@dataclass(frozen=True)
class Shape:
    """A layer on one rank of a group, and a batch.

    Attributes:
        heads: Of one rank.
        ranks: Of the DCP group.
        batch: Tokens.
        dtype: ``bf16`` or ``fp8``: of the projection's weight, and of the query that crosses
            the link.
        dims: P, R, L and Q of the contract.
    """

    heads: int
    ranks: int
    batch: int
    dtype: str = "bf16"
    dims: tuple[int, int, int, int] = (128, 64, 512, 1536)

    @property
    def group(self) -> int:
        """Heads of the group."""
        return self.heads * self.ranks

    @property
    def width(self) -> int:
        """Of one head of the absorbed query."""
        return self.dims[2] + self.dims[1]

    def steps(self, heads: int) -> int:
        """Steps of a graph, so that weights of ``heads`` heads come from memory."""
        P, R, L, Q = self.dims
        return sets_for(heads * ((P + R) * Q * DTYPES[self.dtype].itemsize + 2 * P * L))

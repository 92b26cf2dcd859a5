"""Measured rows, as ``benchmarks.decode_step`` writes them: one JSON object a line.

The key ``k`` says what a line is: ``part`` a kernel or a collective by itself, ``pair`` both
paths over the same span, ``meta`` the machine and the versions, ``skip`` what was left out and
why. Times are microseconds of one layer, as lower quartile, median and upper quartile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.plan.deployment import Dtype
from gate.plan.errors import PlanError
from gate.plan.work import (
    Dims,
    Work,
    absorption,
    assembly,
    attention,
    gather,
    merging,
    projection,
    reordering,
)

# Between the projection's input and what ends the span: the query on this rank without any
# exchange, the group's query, the merged output.
SPANS = ("compute", "query", "step")


@dataclass(frozen=True, slots=True)
class Part:
    """A part that was measured by itself."""

    work: Work
    batch: int
    us: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Both paths over one span, measured in turns.

    Attributes:
        span: One of SPANS.
        path: ``impl``, ``ops`` for vLLM's sequence of operators, ``vllm`` for its own layer.
        heads: Of one rank.
        ranks: Of the DCP group.
        batch: Tokens.
        dims: Widths of a head.
        dtype: Of the projection's weight, and of the query that crosses the link.
        context: Keys of a request over the group; None without attention.
        off: Median microseconds with the gather.
        on: Median microseconds with the replicated query.
        ratio: Median of on / off.
        spread: Lower and upper quartile of the ratio.
    """

    span: str
    path: str
    heads: int
    ranks: int
    batch: int
    dims: Dims
    dtype: Dtype
    context: int | None
    off: float
    on: float
    ratio: float
    spread: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    meta: dict[str, Any]
    parts: Sequence[Part]
    pairs: Sequence[Pair]


def read(paths: Iterable[Path]) -> Measured:
    """Rows of one or more files of the same machine.

    Raises:
        PlanError: A file cannot be read, or a line is no row.
    """
    meta: dict[str, Any] = {}
    parts, pairs = [], []
    for path in paths:
        try:
            lines = path.read_text("utf-8").splitlines()
        except OSError as error:
            raise PlanError(f"{path} cannot be read: {error.strerror}") from None
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if row["k"] == "meta":
                    meta |= row
                elif row["k"] == "part":
                    parts.append(Part(_work(row), row["b"], row["us"][1]))
                elif row["k"] == "pair":
                    pairs.append(_pair(row))
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise PlanError(f"{path}:{number} is no measured row: {error!r}") from None
    return Measured(meta, parts, pairs)


def _work(row: dict[str, Any]) -> Work:
    op, batch, heads, dims = row["op"], row["b"], row["n"], Dims(*row["dims"])
    match op:
        case "projection":
            return projection(batch, heads, dims, row["dt"])
        case "absorption":
            return absorption(batch, heads, dims)
        case "assembly":
            return assembly(batch, heads, dims, row["dt"])
        case "reordering":
            return reordering(batch, heads, dims, row["dt"])
        case "gather" | "gather-direct":
            return gather(batch, heads, row["d"], dims, row["dt"], op)
        case "attention":
            return attention(batch, heads, row["keys"], dims)
        case "merging" | "merging-impl" | "merging-vllm":
            return merging(batch, heads, row["d"], dims, op)
    raise ValueError(f"op {op!r}")


def _pair(row: dict[str, Any]) -> Pair:
    low, middle, high = row["r"]
    return Pair(
        span=row["span"],
        path=row["path"],
        heads=row["h"],
        ranks=row["d"],
        batch=row["b"],
        dims=Dims(*row["dims"]),
        dtype=row["dt"],
        context=row.get("ctx"),
        off=row["off"][1],
        on=row["on"][1],
        ratio=middle,
        spread=(low, high),
    )

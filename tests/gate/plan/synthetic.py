"""A machine with made-up constants, and rows that it would have measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gate.plan.machine import Machine, Rate
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

R1 = Dims(128, 64, 512, 1536)
RATES = {
    "projection-bf16": Rate(3.0, 4.0, 5.0, 700.0),
    "projection-fp8": Rate(3.5, 4.0, 5.0, 1200.0),
    "absorption": Rate(2.5, 3.5, 4.0),
    "assembly-bf16": Rate(2.0, activations_tbs=3.0),
    "assembly-fp8": Rate(4.0, activations_tbs=3.0),
    "gather": Rate(9.0, link_gbs=300.0, hop_us=0.6),
    "reordering": Rate(2.0, activations_tbs=2.5),
    "attention": Rate(8.0, 3.5, tflops=500.0),
    "merging": Rate(25.0, activations_tbs=3.0, link_gbs=250.0, hop_us=0.6),
}
MACHINE = Machine("made up", RATES, error=0.05, ranks=8)


def part_rows() -> Iterator[dict[str, Any]]:
    """A row for each part over a grid, as the benchmark writes them."""

    def row(op: str, work: Work, n: int, batch: int, dtype: str, **more: int) -> dict[str, Any]:
        us = RATES[work.kind].microseconds(work)
        fields = {"k": "part", "op": op, "n": n, "b": batch, "dt": dtype, "us": [us, us, us]}
        return fields | {"dims": [R1.P, R1.R, R1.L, R1.Q]} | more

    for n in (4, 16, 64, 128):
        for batch in (1, 8, 64, 256, 512):
            yield row("projection", projection(batch, n, R1, "bf16"), n, batch, "bf16")
            yield row("projection", projection(batch, n, R1, "fp8"), n, batch, "fp8")
            yield row("absorption", absorption(batch, n, R1), n, batch, "bf16")
            yield row("assembly", assembly(batch, n, R1, "bf16"), n, batch, "bf16")
            yield row("assembly", assembly(batch, n, R1, "fp8"), n, batch, "fp8")
            yield row("reordering", reordering(batch, n, R1, "bf16"), n, batch, "bf16")
            for keys in (512, 4096):
                work = attention(batch, n, keys, R1)
                yield row("attention", work, n, batch, "bf16", keys=keys)
            for ranks in (2, 4):
                work = gather(batch, n, ranks, R1, "bf16")
                yield row("gather", work, n, batch, "bf16", d=ranks)
                work = merging(batch, n, ranks, R1)
                yield row("merging", work, n, batch, "bf16", d=ranks)


def write(path: Path, rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Path:
    """Write rows as the benchmark does."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path

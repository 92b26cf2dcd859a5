"""From measured parts to a machine's constants, and how well those predict what was held out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate.plan.deployment import Deployment
from gate.plan.errors import PlanError
from gate.plan.machine import NVLINK_HOP_US, Machine, Rate
from gate.plan.models import MLAModel
from gate.plan.rows import Measured, Pair, Part
from gate.plan.work import Work, attention, dims_of, merging, query_of

_MERGING = {"ops": "merging", "impl": "merging-impl", "vllm": "merging-vllm"}
# Ratios nearer to 1 than this call for no answer.
UNDECIDED = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """A measured pair, which no constant was taken from, and its prediction."""

    pair: Pair
    predicted: float

    @property
    def deviation(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.pair.ratio - 1

    @property
    def answer_is_right(self) -> bool:
        """Whether on or off is what was measured; either is, close to 1."""
        near = abs(self.pair.ratio - 1) <= UNDECIDED
        return near or (self.predicted < 1) == (self.pair.ratio < 1)


def calibrate(measured: Measured) -> Machine:
    """Constants of the machine that the parts were measured on.

    The pairs are not looked at, except for the error that the constants come with.

    Raises:
        PlanError: No part was measured.
    """
    if not measured.parts:
        raise PlanError("no part was measured, so there is nothing to calibrate on")
    kinds = sorted({part.work.kind for part in measured.parts})
    rates = {
        kind: _fit([part for part in measured.parts if part.work.kind == kind]) for kind in kinds
    }
    ranks = max((pair.ranks for pair in measured.pairs if pair.span != "compute"), default=1)
    name = " x ".join(str(measured.meta.get(key, "?")) for key in ("world", "gpu"))
    machine = Machine(name, rates, ranks=ranks)
    checks = check(machine, measured.pairs)
    worst = max((abs(one.deviation) for one in checks), default=None)
    return replace(machine, error=None if worst is None else round(worst, 3))


def check(machine: Machine, pairs: Iterable[Pair]) -> list[Check]:
    """Predictions of measured pairs."""
    return [Check(pair, predict_pair(machine, pair)) for pair in pairs]


def predict_pair(machine: Machine, pair: Pair) -> float:
    """Predicted on / off of what ``pair`` measured."""
    model = MLAModel(
        "measured",
        H=pair.heads * pair.ranks,
        P=pair.dims.P,
        R=pair.dims.R,
        L=pair.dims.L,
        V=pair.dims.P,
        Q=pair.dims.Q,
        layers=None,
    )
    deployment = Deployment(model, pair.ranks, pair.ranks, pair.dtype, pair.dtype)
    # Attention is measured with kernels that take a query in one tensor.
    in_parts = pair.path == "impl" and pair.dtype == "bf16" and pair.context is None
    on = query_of(deployment, pair.batch, True, in_parts)
    off = query_of(deployment, pair.batch, False)
    if pair.span == "compute":
        off = [work for work in off if work.kind not in ("gather", "reordering")]
    rest = []
    if pair.context is not None:
        dims = dims_of(deployment)
        keys = -(-pair.context // pair.ranks)
        rest = [
            attention(pair.batch, deployment.Hg, keys, dims),
            merging(pair.batch, deployment.Hg, pair.ranks, dims, _MERGING[pair.path]),
        ]
    return machine.microseconds(on + rest) / machine.microseconds(off + rest)


def _fit(parts: Sequence[Part]) -> Rate:
    """The constants, none below 0, of the least squared relative errors."""
    times = sorted({part.us for part in parts})
    # A floor is what many small parts take: no more than the faster half of them.
    floors = [0.0, *times[: len(times) // 2]]
    fits = [
        replace(rate, floor_us=floor)
        for floor in floors
        for rate in _fit_bounds([part for part in parts if part.us > floor])
    ]

    def squared(rate: Rate) -> float:
        return sum((rate.microseconds(part.work) / part.us - 1) ** 2 for part in parts)

    return min(fits, key=squared)


def _fit_bounds(parts: Sequence[Part]) -> Iterator[Rate]:
    """Constants without a floor, for each way to tell what is bound by loading from the rest.

    With any constants that is told by the operations for each byte of weights.
    """
    works = [part.work for part in parts]
    intensities = {work.flops / work.weights for work in works if work.weights}
    for least in (*sorted(intensities), math.inf):
        bound = [
            replace(work, weights=0.0)
            if work.flops and work.flops >= least * work.weights
            else replace(work, flops=0.0)
            for work in works
        ]
        yield _fit_sum(parts, bound)


def _fit_sum(parts: Sequence[Part], works: Sequence[Work]) -> Rate:
    """:func:`_fit` where everything counted in ``works`` takes its own time."""
    amounts = np.array(
        [[1.0, w.weights, w.activations, w.flops, w.link] for w in works], dtype=np.float64
    )
    times = np.array([part.us for part in parts])
    hops = np.array([work.hops for work in works], dtype=np.float64)
    if hops.any():
        amounts = np.column_stack([amounts, hops])
    relative = amounts / times[:, None]
    used = np.flatnonzero(relative.any(axis=0))
    scale = relative[:, used].max(axis=0)
    solved = np.zeros(6)
    solved[used] = _non_negative(relative[:, used] / scale, np.ones(len(parts))) / scale
    fixed, weights, activations, flops, link, hop = solved.tolist()
    collective = any(work.link for work in works)
    return Rate(
        fixed_us=round(fixed, 3),
        weights_tbs=_rate(weights, 1e-6),
        activations_tbs=_rate(activations, 1e-6),
        tflops=_rate(flops, 1e-6),
        link_gbs=_rate(link, 1e-3),
        hop_us=round(hop, 3) if hops.any() else NVLINK_HOP_US if collective else 0.0,
    )


def _rate(microseconds_each: float, unit: float) -> float:
    """What is got through in a microsecond, in ``unit``; 0 where it costs no time."""
    return float(f"{unit / microseconds_each:.4g}") if microseconds_each > 0 else 0.0


def _non_negative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares without negative unknowns: the best of every choice of those that are 0."""
    columns = matrix.shape[1]
    best, least = np.zeros(columns), float(target @ target)
    for size in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), size):
            solved, *_ = np.linalg.lstsq(matrix[:, chosen], target)
            rest = matrix[:, chosen] @ solved - target
            if (solved >= 0).all() and float(rest @ rest) < least:
                best, least = np.zeros(columns), float(rest @ rest)
                best[list(chosen)] = solved
    return best

"""What changed from one run of a subject to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from gate.report.reasons import Reason
from gate.report.verdict_file import Run


@dataclass(frozen=True, slots=True)
class Step:
    """A run, and the next one of the same subject.

    Attributes:
        base: The first.
        patch: The next.
        verdicts: Clauses by how their verdict changed, such as ``from known to pass``.
        begun: Known failures, numbered from 1 among all, that the first does not have.
        ended: Those that the next does not have any more.
    """

    base: Run
    patch: Run
    verdicts: Mapping[str, Sequence[str]]
    begun: Sequence[int]
    ended: Sequence[int]

    def __str__(self) -> str:
        parts = [f"{', '.join(clauses)} {how}" for how, clauses in self.verdicts.items()]
        parts += [f"{_numbers(self.begun)} new"] if self.begun else []
        parts += [f"{_numbers(self.ended)} gone"] if self.ended else []
        return "; ".join(parts)


def _numbers(known: Sequence[int]) -> str:
    """``known failures 1 to 3, 7 are``."""
    blocks = groupby(enumerate(known), key=lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in block] for _, block in blocks]
    texts = [f"{block[0]} to {block[-1]}" if block[1:] else str(block[0]) for block in ranges]
    noun, verb = ("known failures", "are") if known[1:] else ("known failure", "is")
    return f"{noun} {', '.join(texts)} {verb}"


def steps(runs: Sequence[Run], known: Sequence[Reason]) -> list[Step]:
    """Steps between neighbors of one subject that changed anything.

    Args:
        runs: In order.
        known: What of the known list was met on them.
    """
    every = [
        _step(base, patch, known) for base, patch in pairwise(runs) if base.subject == patch.subject
    ]
    return [step for step in every if step.verdicts or step.begun or step.ended]


def _step(base: Run, patch: Run, known: Sequence[Reason]) -> Step:
    verdicts: dict[str, list[str]] = {}
    for before, after in zip(base.clauses, patch.clauses, strict=True):
        if before.verdict is not after.verdict:
            verdicts.setdefault(f"from {before.verdict} to {after.verdict}", []).append(after.id)
    had, has = (
        [number for number, reason in enumerate(known, 1) if run in reason.runs]
        for run in (base, patch)
    )
    return Step(
        base,
        patch,
        verdicts,
        begun=[number for number in has if number not in had],
        ended=[number for number in had if number not in has],
    )

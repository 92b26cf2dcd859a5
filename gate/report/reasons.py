"""Each reason for which properties fail as listed, or clauses do not apply, told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gate.report.verdict_file import Run
from gate.results import Verdict
from properties.contract import contract


@dataclass(slots=True)
class Reason:
    """One reason, wherever it was met.

    Attributes:
        text: A sentence.
        link: Where it is shown; empty where nothing is to be shown.
        clauses: That it touches, in the order of the contract.
        runs: That met it, in their order.
    """

    text: str
    link: str
    clauses: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def known(runs: Sequence[Run]) -> list[Reason]:
    """What is listed as known and was met, in the order of the contract."""
    return _gather(
        (run, test.clauses, failure.reason, failure.link)
        for run in runs
        for test in run.tests
        for failure in test.listed
    )


def not_applicable(runs: Sequence[Run]) -> list[Reason]:
    """Why clauses do not apply as a whole, in the order of the contract."""
    return _gather(
        (run, [clause.id], test.reason, "")
        for run in runs
        for clause in run.clauses
        if clause.verdict is Verdict.NOT_APPLICABLE
        for test in clause.tests
    )


def _gather(met: Iterable[tuple[Run, Sequence[str], str, str]]) -> list[Reason]:
    order = list(contract())
    found: dict[tuple[str, str], Reason] = {}
    for run, clauses, text, link in met:
        reason = found.setdefault((text, link), Reason(text, link))
        reason.clauses = sorted({*reason.clauses, *clauses}, key=order.index)
        if run not in reason.runs:
            reason.runs.append(run)
    return sorted(found.values(), key=lambda reason: order.index(reason.clauses[0]))

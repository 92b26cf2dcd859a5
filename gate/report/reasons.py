"""Each reason for which properties fail as listed, or clauses do not apply, told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gate.report.verdict_file import Run
from gate.results import FailureClass, Verdict
from properties.contract import contract


@dataclass(slots=True)
class Reason:
    """One reason, wherever it was met.

    Attributes:
        text: A sentence.
        link: Where it is shown; empty where nothing is to be shown.
        kind: How much it weighs; None of what does not apply.
        hits: Of a bug, who meets it and how; else why nobody does, or what upstream promises.
        clauses: That it touches, in the order of the contract.
        runs: That met it, in their order.
    """

    text: str
    link: str
    kind: FailureClass | None = None
    hits: str = ""
    clauses: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


def known(runs: Sequence[Run]) -> list[Reason]:
    """What is listed as known and was met: bugs first, each class in the contract's order."""
    found = _gather(
        (run, test.clauses, Reason(failure.reason, failure.link, failure.kind, failure.hits))
        for run in runs
        for test in run.tests
        for failure in test.listed
    )
    order = list(FailureClass)
    return sorted(found, key=lambda reason: order.index(reason.kind) if reason.kind else len(order))


def not_applicable(runs: Sequence[Run]) -> list[Reason]:
    """Why clauses do not apply as a whole, in the order of the contract."""
    return _gather(
        (run, [clause.id], Reason(test.reason, ""))
        for run in runs
        for clause in run.clauses
        if clause.verdict is Verdict.NOT_APPLICABLE
        for test in clause.tests
    )


def _gather(met: Iterable[tuple[Run, Sequence[str], Reason]]) -> list[Reason]:
    order = list(contract())
    found: dict[tuple[str, str], Reason] = {}
    for run, clauses, new in met:
        reason = found.setdefault((new.text, new.link), new)
        reason.clauses = sorted({*reason.clauses, *clauses}, key=order.index)
        if run not in reason.runs:
            reason.runs.append(run)
    return sorted(found.values(), key=lambda reason: order.index(reason.clauses[0]))

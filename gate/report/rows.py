"""What every clause, and every property of it, came to on all runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gate.report.verdict_file import Run
from gate.results import ClauseResult, TestResult, Verdict
from properties.contract import contract

_GRAVITY = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.KNOWN, Verdict.NOT_APPLICABLE, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a property came to on runs that it tells the same of.

    Attributes:
        runs: These, in order.
        last: Its result on the last of them.
    """

    runs: Sequence[Run]
    last: TestResult


@dataclass(frozen=True, slots=True)
class Row:
    """One clause over all runs.

    Attributes:
        id: Of the clause.
        text: What it says.
        cells: The verdict on it by target of the run.
        properties: Outcomes of each of its properties by node id, the gravest first.
    """

    id: str
    text: str
    cells: Mapping[str, ClauseResult]
    properties: Mapping[str, list[Outcome]]


def rows(runs: Sequence[Run]) -> list[Row]:
    """A row for every clause of the contract, in its order."""
    found: dict[str, list[tuple[Run, TestResult]]] = {}
    for run in runs:
        for result in run.tests:
            found.setdefault(result.test, []).append((run, result))
    properties = {test: _outcomes(results) for test, results in found.items()}
    return [
        Row(
            id_,
            text,
            {run.target: run.clauses[number] for run in runs},
            {
                test: outcomes
                for test, outcomes in properties.items()
                if id_ in outcomes[0].last.clauses
            },
        )
        for number, (id_, text) in enumerate(contract().items())
    ]


def failures(rows: Sequence[Row]) -> list[Outcome]:
    """What fails, or could not be judged, in ``rows``: each outcome once, in their order."""
    found = {
        test: [one for one in outcomes if one.last.verdict in (Verdict.FAIL, Verdict.UNKNOWN)]
        for row in rows
        for test, outcomes in row.properties.items()
    }
    return [outcome for outcomes in found.values() for outcome in outcomes]


def _outcomes(results: Sequence[tuple[Run, TestResult]]) -> list[Outcome]:
    """The outcomes of one property, whose ``results`` by run are in order."""
    groups: dict[tuple[object, ...], list[tuple[Run, TestResult]]] = {}
    for run, result in results:
        basis = tuple(result.rests_on.items())
        key = (result.verdict, result.reason, result.examples, result.counterexample, basis)
        groups.setdefault(key, []).append((run, result))
    return sorted(
        (Outcome([run for run, _ in group], group[-1][1]) for group in groups.values()),
        key=lambda outcome: _GRAVITY.index(outcome.last.verdict),
    )

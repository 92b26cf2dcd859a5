"""One trial: the properties that a fault must not survive, run until the first of them fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from _pytest.runner import runtestprotocol

from gate.faults.fault import Seed
from gate.faults.outcome import Fate
from gate.results import TestResult, Verdict
from gate.runner import RESULT


@dataclass(frozen=True)
class Trial:
    """Properties to run on a fault, or on the subject as it is."""

    seed: Seed | None
    items: list[pytest.Item]


@dataclass
class Report:
    """What a trial came to: results, or why there are none."""

    results: list[TestResult] = field(default_factory=list)
    fate: Fate | None = None
    error: str = ""
    seconds: float = 0.0


def run_items(
    items: Sequence[pytest.Item], before_each: Callable[[], None] = lambda: None
) -> list[TestResult]:
    """Run properties until one of them fails."""
    results: list[TestResult] = []
    for item, following in itertools.zip_longest(items, items[1:]):
        before_each()
        reports = runtestprotocol(item, log=False, nextitem=following)
        properties = [value for report in reports for value in report.user_properties]
        results += [TestResult.from_json(value) for name, value in properties if name == RESULT]  # type: ignore[arg-type]
        if results and results[-1].verdict is Verdict.FAIL:
            item.session._setupstate.teardown_exact(None)
            break
    return results

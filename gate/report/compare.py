"""Compare two runs, a base and a patch, and tell only what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gate.report.verdict_file import Run
from gate.results import NOT_RUN, TestResult, Verdict
from properties.contract import contract

_BAD = (Verdict.FAIL, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Change:
    """A property whose verdict, the reason for it or what it rests on is not what it was."""

    base: TestResult
    patch: TestResult

    @property
    def is_new_failure(self) -> bool:
        """Whether the patch fails, and not as the base does."""
        return self.patch.verdict is Verdict.FAIL

    @property
    def is_lost(self) -> bool:
        """Whether the base was judged and the patch is not."""
        return self.patch.verdict is Verdict.UNKNOWN

    def __str__(self) -> str:
        lines = (
            f"{', '.join(self.patch.clauses)}: {self.base.verdict} -> {self.patch.verdict}, "
            f"{self.patch.test}",
            self._basis(),
            self.patch.reason,
            self.patch.repeat and f"to repeat it: {self.patch.repeat}",
        )
        return "\n    ".join(filter(None, lines))

    def _basis(self) -> str:
        moved = [
            f"{id_} rests on {had} -> {has}"
            for id_, has in self.patch.rests_on.items()
            if (had := self.base.rests_on.get(id_, has)) is not has
        ]
        return ", ".join(moved)


def changes(base: Run, patch: Run) -> Sequence[Change]:
    """Properties on which the two runs differ, new failures first, and of fewest clauses first.

    The fewer clauses a property has, the closer is its failure to what is wrong. Two failures
    are one and the same if their reasons are.
    """
    before, after = ({test.test: test for test in run.tests} for run in (base, patch))
    found = [
        Change(before.get(test, _not_run(one)), after.get(test, _not_run(one)))
        for test, one in (before | after).items()
    ]
    order = list(contract())
    return sorted(
        (change for change in found if _differ(change.base, change.patch)),
        key=lambda change: (
            not change.is_new_failure,
            len(change.patch.clauses),
            [order.index(id_) for id_ in change.patch.clauses],
        ),
    )


def _differ(base: TestResult, patch: TestResult) -> bool:
    return (
        base.verdict is not patch.verdict
        or (patch.verdict in _BAD and base.reason != patch.reason)
        or (base.ran and patch.ran and base.rests_on != patch.rests_on)
    )


def _not_run(test: TestResult) -> TestResult:
    return TestResult(test.test, test.clauses, Verdict.UNKNOWN, 0, reason=NOT_RUN)

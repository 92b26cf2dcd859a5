"""Known failures: what a subject is understood to do wrong, and what that explains."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis.errors import DidNotReproduce, FailedHealthCheck, Unsatisfiable
from packaging.version import Version

from fixtures.ranks.errors import CannotStart, RankDied, TimedOut
from gate.predicate import Predicate, PredicateError
from gate.results import FailureClass, KnownFailure, TestResult, Verdict

# Not a verdict on the subject: nothing was generated, or there were no ranks to run it.
UNDECIDED = (
    Unsatisfiable,
    FailedHealthCheck,
    DidNotReproduce,
    CannotStart,
    RankDied,
    TimedOut,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One known failure of a subject.

    Attributes:
        match: Searched for in ``"ExceptionType: message"``. Any other failure of the same
            test stays a failure.
        reason: What is wrong with the subject, in a sentence.
        link: Where it is shown: an upstream issue, or a script in this repository.
        kind: How much it weighs, ``class`` in the file.
        hits: Of a bug: who meets it, and how.
        why: Of what is no bug: why nobody meets it, or what upstream promises.
        when: Which examples fail so; None in a test without examples.
        since: First version judged that fails so.
        until: First version that does not fail so any more; None where every later one does.
        clause: Clause whose tests may fail so; empty where ``test`` is given.
        test: Node id of the one test that may fail so; empty where ``clause`` is given.
        device: Where it fails so, ``cpu`` or ``cuda``; empty for both.
        mended: Mending of the plug-in that makes it go away; empty where none does.
    """

    match: re.Pattern[str]
    reason: str
    link: str
    kind: FailureClass
    since: Version
    until: Version | None = None
    clause: str = ""
    test: str = ""
    hits: str = ""
    why: str = ""
    when: Predicate | None = None
    device: str = ""
    mended: str = ""

    @property
    def target(self) -> str:
        return self.clause or self.test

    def as_failure(self) -> KnownFailure:
        """What a verdict file keeps of it."""
        return KnownFailure(
            self.match.pattern, self.reason, self.link, self.kind, self.hits or self.why
        )

    def applies_to(self, version: Version) -> bool:
        """Whether ``version`` fails so: a build between two releases does as the one before."""
        return self.since <= version and (self.until is None or version < self.until)

    def is_of(self, device: str) -> bool:
        """Whether it may fail so where ranks compute on ``device``."""
        return self.device in ("", device)

    def covers(self, test: str, clauses: Sequence[str]) -> bool:
        """Whether this entry speaks of ``test``, which checks ``clauses``."""
        return self.clause in clauses if self.clause else self.test == test

    def explains(self, failure: str, arguments: Mapping[str, Any] | None) -> bool:
        """Whether ``failure``, an ``"ExceptionType: message"``, of this example is the one meant.

        Args:
            failure: What was raised.
            arguments: Of the example by name; None in a test without examples.

        Raises:
            PredicateError: ``when`` asks for what the example does not have.
        """
        if self.match.search(failure) is None:
            return False
        if self.when is None or arguments is None:
            return self.when is None and arguments is None
        if self.clause and not self.when.names <= arguments.keys():
            return False
        return self.when.holds(arguments)


def explanation(
    entries: Iterable[Entry],
    error: BaseException,
    arguments: Mapping[str, Any] | None = None,
) -> Entry | None:
    """The first of ``entries`` that ``error`` is the failure of.

    Args:
        entries: Of the known list.
        error: What the test raised.
        arguments: Of the example that raised it, by name; None in a test without examples.
    """
    if isinstance(error, (*UNDECIDED, PredicateError)):
        return None
    failure = f"{type(error).__name__}: {error}"
    return next((entry for entry in entries if entry.explains(failure, arguments)), None)


def misplaced(entry: Entry, test: str, arguments: Collection[str] | None, drawn: bool) -> str:
    """What is wrong with the entry's ``when`` for a test that it covers; empty where nothing is.

    Args:
        entry: Of the known list.
        test: Node id.
        arguments: Names of the test's arguments that an example gives; None without examples.
        drawn: Whether the test draws more while it runs, under names that show only then.
    """
    if arguments is None:
        return "" if entry.when is None else f"{test} has no examples: leave when out"
    if entry.when is None:
        return (
            f"{test} has examples, of which any other that fails so would be hidden: say by "
            f"when = '...' which ones are meant, in terms of {', '.join(sorted(arguments))}"
        )
    unknown = entry.when.names - set(arguments)
    if unknown and not drawn and entry.test:
        return (
            f"when asks for {', '.join(sorted(unknown))}, but {test} has "
            f"{', '.join(sorted(arguments))}"
        )
    return ""


def stale(
    entries: Iterable[Entry], plan: Mapping[str, Sequence[str]], results: Sequence[TestResult]
) -> list[Entry]:
    """Entries that explain no failure of their tests any more, although these all ran.

    Args:
        entries: Of the known list.
        plan: Clauses of every collected test.
        results: Of the tests that ran.
    """
    by_test = {result.test: result for result in results}
    found = []
    for entry in entries:
        covered = [
            test
            for test, clauses in plan.items()
            if entry.covers(test, clauses)
            and not (test in by_test and by_test[test].verdict is Verdict.NOT_APPLICABLE)
        ]
        # A failure that is not listed may have come first, and the world may have died.
        if covered and all(
            test in by_test
            and by_test[test].verdict not in (Verdict.FAIL, Verdict.UNKNOWN)
            and entry.match.pattern not in {failure.match for failure in by_test[test].listed}
            for test in covered
        ):
            found.append(entry)
    return found


def unmatched(entries: Iterable[Entry], plan: Mapping[str, Sequence[str]]) -> list[Entry]:
    """Entries that speak of no test of ``plan``, the clauses of every collected test."""
    return [
        entry
        for entry in entries
        if not any(entry.covers(test, clauses) for test, clauses in plan.items())
    ]

"""Known lists: failures of one version of a subject that are understood and written down."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis.errors import DidNotReproduce, FailedHealthCheck, Unsatisfiable
from packaging.version import InvalidVersion, Version

from fixtures.worlds.errors import CannotStart, RankDied, TimedOut
from gate.results import TestResult, Verdict
from gate.shares import whole_id
from properties.contract import contract

# Not a verdict on the subject: nothing was generated, or there were no ranks to run it.
UNDECIDED = (
    Unsatisfiable,
    FailedHealthCheck,
    DidNotReproduce,
    CannotStart,
    RankDied,
    TimedOut,
)

_REQUIRED = ("match", "reason", "link")
_OPTIONAL = ("clause", "test", "since", "until")


class KnownListError(Exception):
    """A known list is wrong; the message names the file, the entry and what to change."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One known failure.

    Attributes:
        clause: Clause whose tests may fail so; empty where ``test`` is given.
        test: Node id of the one test that may fail so; empty where ``clause`` is given.
        match: Searched for in ``"ExceptionType: message"``. Any other failure of the same
            test stays a failure.
        reason: What is wrong with the subject, in a sentence.
        link: Where it is shown: an upstream issue, or a script in this repository.
        since: First version of the subject that fails so, where known.
        until: First version that does not fail so any more, where known.
    """

    clause: str
    test: str
    match: re.Pattern[str]
    reason: str
    link: str
    since: str = ""
    until: str = ""

    @property
    def target(self) -> str:
        return self.clause or self.test

    def covers(self, test: str, clauses: Sequence[str]) -> bool:
        """Whether this entry speaks of ``test``, which checks ``clauses``."""
        return self.clause in clauses if self.clause else self.test == whole_id(test)

    def explains(self, failure: str) -> bool:
        """Whether ``failure``, an ``"ExceptionType: message"``, is the one meant."""
        return self.match.search(failure) is not None


def explanation(entries: Iterable[Entry], error: BaseException) -> Entry | None:
    """The first of ``entries`` that ``error`` is the failure of."""
    if isinstance(error, UNDECIDED):
        return None
    failure = f"{type(error).__name__}: {error}"
    return next((entry for entry in entries if entry.explains(failure)), None)


def path_of(directory: Path, subject: str, version: str) -> Path:
    """The known list for ``subject`` at ``version``.

    That of the newest version that is no newer, as a build between two releases fails like the
    one before; where there is none, the path at which one would be looked for.
    """
    release = version.partition("+")[0]
    exact = directory / f"{subject}-{release}.toml"
    if exact.exists() or not _is_version(release):
        return exact
    older = {
        Version(text): path
        for path in directory.glob(f"{subject}-*.toml")
        if _is_version(text := path.stem.removeprefix(f"{subject}-"))
        and Version(text) <= Version(release)
    }
    return older[max(older)] if older else exact


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def load(path: Path, version: str) -> tuple[Entry, ...]:
    """Entries of the known list at ``path``; none where there is no such file.

    Raises:
        KnownListError: The file is not TOML, or an entry is not of the shape described by
            :class:`Entry`, names no clause of the contract, matches every failure, or does
            not apply to ``version``.
    """
    if not path.exists():
        return ()
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise KnownListError(f"{path}: not valid TOML: {error}") from error
    if extra := document.keys() - {"known"}:
        raise KnownListError(f"{path}: unknown table {', '.join(extra)}: entries are [[known]]")
    return tuple(
        _entry(f"{path}: entry {number}", fields, version)
        for number, fields in enumerate(document.get("known", ()), 1)
    )


def _entry(where: str, fields: Mapping[str, object], version: str) -> Entry:
    if wrong := [key for key in fields if key not in _REQUIRED + _OPTIONAL]:
        raise KnownListError(
            f"{where} has the unknown key {', '.join(wrong)}: choose among "
            f"{', '.join(_REQUIRED + _OPTIONAL)}"
        )
    texts = {key: value for key, value in fields.items() if isinstance(value, str) and value}
    if empty := [key for key in fields if key not in texts]:
        raise KnownListError(f"{where}: {', '.join(empty)} must be a non-empty string")
    if missing := [key for key in _REQUIRED if key not in texts]:
        raise KnownListError(f"{where} lacks {', '.join(missing)}")
    if ("clause" in texts) == ("test" in texts):
        raise KnownListError(f"{where} must name either a clause or a test")
    if "clause" in texts and texts["clause"] not in contract():
        raise KnownListError(f"{where}: the contract has no clause {texts['clause']}")
    try:
        match = re.compile(texts.pop("match"))
    except re.error as error:
        raise KnownListError(f"{where}: match is not a regular expression: {error}") from error
    if match.search("") is not None:
        raise KnownListError(
            f"{where}: match {match.pattern!r} fits every failure and would hide new ones: "
            f"quote the message of the one that is known"
        )
    entry = Entry(**{"clause": "", "test": "", **texts}, match=match)
    _check_applies(where, entry, version)
    return entry


def _check_applies(where: str, entry: Entry, version: str) -> None:
    try:
        judged = Version(version)
        if entry.since and judged < Version(entry.since):
            raise KnownListError(f"{where} is known since {entry.since} only, not in {version}")
        if entry.until and judged >= Version(entry.until):
            raise KnownListError(f"{where} was known until {entry.until}, not in {version}")
    except InvalidVersion as error:
        raise KnownListError(f"{where}: {error}") from error


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
        covered = [test for test, clauses in plan.items() if entry.covers(test, clauses)]
        # A failure that is not listed may have come first, and the world may have died.
        if covered and all(
            test in by_test
            and by_test[test].verdict not in (Verdict.FAIL, Verdict.UNKNOWN)
            and entry.match.pattern not in by_test[test].listed
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

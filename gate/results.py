"""Verdicts: of one test, and of a clause from those of its tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from fixtures.subjects.subject import Basis
from gate.features import Generated


class Verdict(StrEnum):
    """The contract's verdicts; ``stand-in`` is one on a clause, and of no test."""

    PASS = "pass"
    STAND_IN = "stand-in"
    FAIL = "fail"
    KNOWN = "known"
    NOT_APPLICABLE = "not applicable"
    UNKNOWN = "unknown"


# Of a clause's tests, the first of these that occurs decides.
_PRECEDENCE = (
    Verdict.FAIL,
    Verdict.UNKNOWN,
    Verdict.KNOWN,
    Verdict.PASS,
    Verdict.NOT_APPLICABLE,
)


class FailureClass(StrEnum):
    """How much a known failure weighs, the gravest first."""

    BUG = "bug"
    LATENT = "latent"
    DIVERGENCE = "divergence"


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """What the known list says of a failure.

    Attributes:
        match: Pattern of the entry that explains it.
        reason: What is wrong with the subject, in a sentence.
        link: Where it is shown: an upstream issue, or a script in this repository.
        kind: How much it weighs; ``class`` in a verdict file.
        hits: Of a bug, who meets it and how; else why nobody does, or what upstream promises.
    """

    match: str
    reason: str
    link: str
    kind: FailureClass
    hits: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason} ({self.link})"

    def to_json(self) -> dict[str, str]:
        fields = {key: str(value) for key, value in asdict(self).items() if key != "kind"}
        return fields | {"class": self.kind.value}

    @classmethod
    def from_json(cls, data: Mapping[str, str]) -> KnownFailure:
        fields = dict(data)
        return cls(kind=FailureClass(fields.pop("class")), **fields)


# What a clause may come to, in the order in which it is counted: of what is known, bugs first.
LABELS = (
    Verdict.PASS.value,
    Verdict.STAND_IN.value,
    Verdict.FAIL.value,
    *(f"{Verdict.KNOWN}: {kind}" for kind in FailureClass),
    Verdict.NOT_APPLICABLE.value,
    Verdict.UNKNOWN.value,
)


def gravest(failures: Iterable[KnownFailure]) -> FailureClass | None:
    """The class that weighs most among ``failures``; None where there are none."""
    found = {failure.kind for failure in failures}
    return next((kind for kind in FailureClass if kind in found), None)


@dataclass(frozen=True, slots=True)
class TestResult:
    """What one test said about a subject.

    Attributes:
        test: Node id.
        clauses: Clauses that the test checks.
        verdict: Its own.
        examples: Examples that ran to an end, and passed or failed as nobody knew; rejected ones
            do not count.
        known_examples: Examples that ended at a known failure.
        seconds: Wall-clock time of the test.
        reason: Why, wherever the verdict is not a pass.
        counterexample: The smallest failing example in words; of a listed failure, which is not
            shrunk, the first example and the first line of what was raised.
        repeat: Command that runs the failing example again.
        stopped_early: True if a smaller counterexample was not looked for to the end.
        place: Where the subject raised the failure, see :func:`gate.causes.place_of`.
        generated: How many passing examples had which value of a feature.
        listed: Known failures that explain its own.
        rests_on: Whose code computes what it checks, by clause.
    """

    __test__ = False

    test: str
    clauses: tuple[str, ...]
    verdict: Verdict
    examples: int
    known_examples: int = 0
    seconds: float = 0.0
    reason: str = ""
    counterexample: str = ""
    repeat: str = ""
    stopped_early: bool = False
    place: str = ""
    generated: Generated = field(default_factory=dict)
    listed: tuple[KnownFailure, ...] = ()
    rests_on: Mapping[str, Basis] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        """True if it said something of the subject."""
        return self.verdict not in (Verdict.NOT_APPLICABLE, Verdict.UNKNOWN)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "clauses": list(self.clauses),
            "verdict": self.verdict.value,
            "listed": [failure.to_json() for failure in self.listed],
            "rests_on": {clause: basis.value for clause, basis in self.rests_on.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TestResult:
        return cls(
            **{
                **data,
                "clauses": tuple(data["clauses"]),
                "verdict": Verdict(data["verdict"]),
                "listed": tuple(map(KnownFailure.from_json, data["listed"])),
                "rests_on": {clause: Basis(of) for clause, of in data["rests_on"].items()},
            }
        )


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """The verdict on one clause.

    Attributes:
        id: Of the clause.
        verdict: The gravest of its tests'; unknown where it has none, and ``stand-in`` for a pass
            in which every test that ran rests on one.
        examples: Of all its tests.
        tests: Results of its tests.
        properties: How many state it, those included that were not asked for.
        reason: Of the tests that decided, wherever the verdict is not a pass; beside a
            pass, what was not applicable.
    """

    id: str
    verdict: Verdict
    examples: int
    tests: tuple[TestResult, ...]
    reason: str = ""
    properties: int = 0

    @property
    def rests_on(self) -> Basis | None:
        """The best that a test which ran rests on; None where none ran."""
        return _best(self.id, self.tests)

    @property
    def resting_examples(self) -> int:
        """Those of its examples whose test rests on that."""
        basis = self.rests_on
        resting = (test for test in self.tests if basis in (None, test.rests_on.get(self.id)))
        return sum(test.examples for test in resting)

    @property
    def counted(self) -> str:
        """``2 of 117``: the examples that rest on what is said, if not all do, of all."""
        resting = self.resting_examples
        return f"{resting:,} of {self.examples:,}" if resting < self.examples else f"{resting:,}"

    @property
    def ran(self) -> int:
        """How many of its properties ran."""
        return sum(test.ran for test in self.tests)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the label does not say: its basis unless that is the subject's own code; a part."""
        basis = self.rests_on
        silent = basis in (None, Basis.OWN) or self.verdict is Verdict.STAND_IN
        part = ("part",) if 0 < self.ran < self.properties else ()
        return part if silent else (str(basis), *part)

    @property
    def known_examples(self) -> int:
        return sum(test.known_examples for test in self.tests)

    @property
    def known_class(self) -> FailureClass | None:
        """How much the gravest of its known failures weighs; None unless it is known to fail."""
        if self.verdict is not Verdict.KNOWN:
            return None
        return gravest(failure for test in self.tests for failure in test.listed)

    @property
    def label(self) -> str:
        """``known: bug``: the verdict, of a known failure with its class."""
        return f"{self.verdict}: {self.known_class}" if self.known_class else str(self.verdict)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "verdict": self.verdict.value,
            "class": self.known_class.value if self.known_class else "",
            "examples": self.examples,
            "known_examples": self.known_examples,
            "rests_on": self.rests_on or "",
            "resting_examples": self.resting_examples,
            "properties": self.properties,
            "ran": self.ran,
            "reason": self.reason,
            "tests": [test.test for test in self.tests],
        }


NO_PROPERTY = "no property"
NOT_SELECTED = "not selected"
NOT_RUN = "not run"


def judge(clauses: Iterable[str], results: Sequence[TestResult]) -> list[ClauseResult]:
    """The verdict on each of ``clauses``, in their order."""
    return [
        _judge_one(id_, tuple(result for result in results if id_ in result.clauses))
        for id_ in clauses
    ]


def _judge_one(id_: str, tests: tuple[TestResult, ...]) -> ClauseResult:
    if not tests:
        return ClauseResult(id_, Verdict.UNKNOWN, 0, (), NO_PROPERTY)
    found = {test.verdict for test in tests}
    verdict = next(verdict for verdict in _PRECEDENCE if verdict in found)
    telling = Verdict.NOT_APPLICABLE if verdict is Verdict.PASS else verdict
    reasons = dict.fromkeys(test.reason for test in tests if test.verdict is telling)
    if verdict is Verdict.PASS and _best(id_, tests) is Basis.STAND_IN:
        verdict = Verdict.STAND_IN
    return ClauseResult(
        id_,
        verdict,
        sum(test.examples for test in tests),
        tests,
        "; ".join(reasons),
        len(tests),
    )


def _best(id_: str, tests: Iterable[TestResult]) -> Basis | None:
    found = {test.rests_on.get(id_) for test in tests if test.ran}
    return next((basis for basis in Basis if basis in found), None)

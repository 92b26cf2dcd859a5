"""Which of many failures to look at first: the one that the others may follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gate.results import TestResult, Verdict
from properties.contract import contract, foundations


@dataclass(frozen=True, slots=True)
class Lead:
    """A failure that nothing else explains.

    Attributes:
        clause: The first clause that fails of a family that builds on no other failing one.
        test: The property of it with the shortest counterexample.
        may_follow: Other failing properties, of this family or of one that builds on it.
        place: Where the subject raised the failure of ``test``; empty if it raised none.
        same_place: Those of ``may_follow`` that it raised there as well.
    """

    clause: str
    test: str
    may_follow: tuple[str, ...]
    place: str
    same_place: tuple[str, ...]

    def __str__(self) -> str:
        text = f"look first at {self.clause} ({self.test})"
        if self.may_follow:
            others = _count(self.may_follow, "other failure")
            text += f": {others} may follow from it"
        if self.place:
            text += f"; it is {self.place}"
            if self.same_place:
                text += f", as in {len(self.same_place)} of them"
        return text

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def leads(results: Sequence[TestResult]) -> list[Lead]:
    """Where to look first among the properties that fail, in the contract's order."""
    failing = [result for result in results if result.verdict is Verdict.FAIL]
    families = {_family(result) for result in failing}
    first = [family for family in families if not foundations(family) & families]
    return sorted((_lead(family, failing) for family in first), key=lambda lead: _at(lead.clause))


def _lead(family: str, failing: Sequence[TestResult]) -> Lead:
    own = [result for result in failing if _family(result) == family]
    lead = min(own, key=lambda result: (_at(_clause(result)), *_length(result), result.test))
    others = [
        result
        for result in failing
        if result is not lead and family in {_family(result), *foundations(_family(result))}
    ]
    same = [result.test for result in others if lead.place and result.place == lead.place]
    return Lead(
        _clause(lead),
        lead.test,
        tuple(sorted(result.test for result in others)),
        lead.place,
        tuple(sorted(same)),
    )


def _clause(result: TestResult) -> str:
    """Of the clauses of a property, the one that builds on most: it needs all that this needs."""
    return max(result.clauses, key=lambda id_: (len(foundations(_prefix(id_))), -_at(id_)))


def _family(result: TestResult) -> str:
    return _prefix(_clause(result))


def _prefix(id_: str) -> str:
    return id_.partition("-")[0]


def _at(id_: str) -> int:
    return list(contract()).index(id_)


def _length(result: TestResult) -> tuple[bool, int]:
    """Sort key: short counterexamples before long ones, and these before none."""
    return not result.counterexample, len(result.counterexample)


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"

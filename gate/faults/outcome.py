"""What the properties said about one seeded fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from gate.faults.fault import Seed
from gate.results import TestResult, Verdict


class Fate(StrEnum):
    """What became of a fault.

    Attributes:
        KILLED: A property of its clause failed.
        SURVIVED: Every property of its clause passed.
        EQUIVALENT: Likewise, and its catalog argues that it changes nothing.
        HUNG: The run did not end, or ranks were lost, without a property failing.
        BROKEN: The subject cannot even be imported, so it is no fault that anyone could ship.
        NOT_RUN: No property of its clause ran.
    """

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    HUNG = "hung"
    BROKEN = "broken"
    NOT_RUN = "not run"


# Errors by which a world says that its ranks were lost: no verdict on the subject.
_LOST = ("TimedOut", "RankDied")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault, and by what.

    Attributes:
        id: Of the fault.
        clauses: As of the seed.
        sentence: What is wrong.
        fate: What became of it.
        by: Node id of the property that failed; empty unless killed.
        clause: Clause of that property; the fault's own for a named one.
        reason: Its failure, or why the fault did not come to be judged.
        seconds: Wall-clock time.
    """

    id: str
    clauses: tuple[str, ...]
    sentence: str
    fate: Fate
    by: str = ""
    clause: str = ""
    reason: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Without the time it took, so that two runs of one revision give the same file."""
        return {key: value for key, value in asdict(self).items() if key != "seconds"}


def judge(seed: Seed, results: Sequence[TestResult], seconds: float) -> Outcome:
    """Judge a fault by the properties of its clauses, run until the first one failed.

    Args:
        seed: The fault.
        results: Of the properties that ran; all of them are green without a fault.
        seconds: How long they took.
    """
    for result in results:
        if result.verdict is Verdict.FAIL:
            own = [one for one in result.clauses if seed.place_of((one,)) is not None]
            return _outcome(seed, Fate.KILLED, result, seconds, clause=own[0], by=result.test)
    for result in results:
        if result.verdict is Verdict.UNKNOWN:
            lost = result.reason.startswith(_LOST)
            return _outcome(seed, Fate.HUNG if lost else Fate.NOT_RUN, result, seconds)
    if not any(result.verdict in (Verdict.PASS, Verdict.KNOWN) for result in results):
        reason = "; ".join(dict.fromkeys(r.reason for r in results if r.reason))
        return Outcome(
            seed.id, seed.clauses, seed.sentence, Fate.NOT_RUN,
            reason=reason or "no property of its clause ran", seconds=seconds,
        )  # fmt: skip
    fate = Fate.EQUIVALENT if seed.equivalent else Fate.SURVIVED
    return Outcome(
        seed.id, seed.clauses, seed.sentence, fate, reason=seed.equivalent, seconds=seconds
    )


def _outcome(
    seed: Seed, fate: Fate, result: TestResult, seconds: float, clause: str = "", by: str = ""
) -> Outcome:
    return Outcome(seed.id, seed.clauses, seed.sentence, fate, by, clause, result.reason, seconds)

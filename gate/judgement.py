"""Gather the results of a run, whoever ran the tests, into a judgement of the subject."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gate import known
from gate.leads import Lead, leads
from gate.results import (
    NO_PROPERTY,
    NOT_RUN,
    NOT_SELECTED,
    ClauseResult,
    TestResult,
    Verdict,
    judge,
)
from properties.contract import contract

SCHEMA = 4


@dataclass
class Judgement:
    """What is known of a subject so far.

    Attributes:
        subject: Name.
        version: Of the subject.
        device: Where its ranks compute.
        world: Kind of the world that its ranks live in.
        profile: Name of the Hypothesis profile.
        settings: Everything else that the run was given.
        run_with: Start of a command line that runs this Python again, from pytest's root.
        entries: Of the known list, for this version.
        partial: Whether properties are held to a part of their examples, or draw them at random,
            which may be without the ones that fail as listed.
        plan: Clauses of every collected property, by node id.
        selected: Those of the plan that the run was asked for.
        exit_code: Of the run, once it is over.
        full_suite: True if every property was asked for, none deselected.
        finished: True if every selected test has run.
        results: Of the tests that ran.
    """

    subject: str
    version: str
    device: str
    world: str
    profile: str
    settings: Mapping[str, str]
    run_with: str = ""
    entries: Sequence[known.Entry] = ()
    partial: bool = False
    plan: dict[str, tuple[str, ...]] = field(default_factory=dict)
    selected: set[str] = field(default_factory=set)
    full_suite: bool = False
    finished: bool = False
    exit_code: int | None = None
    results: dict[str, TestResult] = field(default_factory=dict)

    def clauses(self) -> list[ClauseResult]:
        """The verdict on every clause of the contract.

        A selected test that has not run makes its clauses unknown; one that is deselected
        does so only where nothing else speaks of a clause. Only a run of every property knows
        which clauses have none.
        """
        missing = {test: ids for test, ids in self.plan.items() if test not in self.results}
        not_run = [
            TestResult(test, ids, Verdict.UNKNOWN, 0, reason=NOT_RUN)
            for test, ids in missing.items()
            if test in self.selected
        ]
        heard = [*self.results.values(), *not_run]
        spoken_of = {id_ for result in heard for id_ in result.clauses}
        deselected = [
            TestResult(test, silent, Verdict.UNKNOWN, 0, reason=NOT_SELECTED)
            for test, ids in missing.items()
            if test not in self.selected
            and (silent := tuple(id_ for id_ in ids if id_ not in spoken_of))
        ]
        clauses = [
            replace(clause, properties=max(clause.properties, self._properties_of(clause.id)))
            for clause in judge(contract(), heard + deselected)
        ]
        if self.full_suite:
            return clauses
        return [
            replace(clause, reason=NOT_SELECTED) if clause.reason == NO_PROPERTY else clause
            for clause in clauses
        ]

    def _properties_of(self, clause: str) -> int:
        return sum(clause in ids for ids in self.plan.values())

    def complaints(self) -> list[str]:
        """What is wrong with the known list, a sentence each."""
        found = [
            f"known list: {entry.target} does not fail as listed any more "
            f"({entry.reason}): remove the entry {entry.match.pattern!r}"
            for entry in known.stale(self.entries, self.plan, list(self.results.values()))
            if not self.partial
        ]
        if self.full_suite and self.finished and self.plan:
            found += [
                f"known list: {entry.target} is no test or clause of any property: correct it"
                for entry in known.unmatched(self.entries, self.plan)
            ]
        return found

    def leads(self) -> list[Lead]:
        """Where to look first, among the properties that fail."""
        return leads(list(self.results.values()))

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "version": self.version,
            "device": self.device,
            "world": self.world,
            "profile": self.profile,
            "run_with": self.run_with,
            "finished": self.finished,
            "exit_code": self.exit_code,
            "full_suite": self.full_suite,
            "settings": dict(self.settings),
            "complaints": self.complaints(),
            "look_first": [lead.to_json() for lead in self.leads()],
            "clauses": [clause.to_json() for clause in self.clauses()],
            "tests": [self.results[test].to_json() for test in sorted(self.results)],
        }

    def write(self, path: Path) -> None:
        """Write the judgement as JSON."""
        write_json(path, self.to_json())


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write ``data`` to ``path``; a reader sees the old file or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise

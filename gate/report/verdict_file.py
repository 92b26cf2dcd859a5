"""Verdict files as the pages and comparisons read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.features import Generated, merge
from gate.judgement import SCHEMA
from gate.paste import ROOT, seen_from
from gate.results import ClauseResult, TestResult, Verdict, judge
from gate.scripts.files import scripts_in
from properties.contract import contract

# Folder beside the verdict files that has a folder of scripts for each of them.
SCRIPTS = "scripts"


class VerdictFileError(Exception):
    """A file is no verdict file that this version reads; the message names it."""


@dataclass(frozen=True, slots=True)
class Run:
    """The verdict on one subject.

    Attributes:
        subject: Name.
        version: Of the subject.
        target: Stem of the verdict file, which is the target's own name.
        device: Where its ranks computed.
        world: Kind of the world that they lived in.
        profile: Hypothesis profile.
        finished: True if every selected test ran.
        error: Why there is no verdict at all; empty where there is one.
        settings: Everything else that the run was given.
        complaints: What is wrong with the known list.
        clauses: The verdict on every clause of the contract, in its order.
        tests: Results of the tests that ran.
        run_with: Start of a command line that runs its Python again, from the repository's root.
        scripts: Scripts that show the failure of a test, relative to the verdict file.
        folder: Of the verdict file, as seen from the repository's root.
    """

    subject: str
    version: str
    target: str
    device: str
    world: str
    profile: str
    finished: bool
    error: str
    settings: Mapping[str, str]
    complaints: Sequence[str]
    clauses: Sequence[ClauseResult]
    tests: Sequence[TestResult]
    run_with: str
    scripts: Mapping[str, Sequence[str]]
    folder: str

    @property
    def title(self) -> str:
        """Subject and version, and the target where they do not say which it is."""
        title = f"{self.subject} {self.version}".strip()
        release = f"{self.subject}-{self.version.partition('+')[0]}"
        return title if self.target in (self.subject, release) else f"{title} ({self.target})"

    @property
    def examples(self) -> int:
        return sum(test.examples for test in self.tests)

    @property
    def known_examples(self) -> int:
        """Examples that ended at a known failure."""
        return sum(test.known_examples for test in self.tests)

    @property
    def generated(self) -> Generated:
        """What all its properties were given."""
        return merge(test.generated for test in self.tests)

    def count(self, label: str) -> int:
        """Number of clauses that came to ``label``, among those that have a property."""
        return sum(clause.label == label for clause in self.clauses if clause.tests)


def read(path: Path) -> Run:
    """The run that wrote the verdict file at ``path``.

    Raises:
        VerdictFileError: There is no such file, or it is none of this schema.
    """
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if data["schema"] != SCHEMA:
            raise VerdictFileError(
                f"{path} is of schema {data['schema']}, but this version reads {SCHEMA}"
            )
        return _run(data, path)
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise VerdictFileError(
            f"{path} cannot be read as a verdict file: {type(error).__name__}: {error}"
        ) from error


def _run(data: Mapping[str, Any], path: Path) -> Run:
    tests = {one["test"]: TestResult.from_json(one) for one in data["tests"]}
    error = data.get("error", "")
    written = {
        one["id"]: ClauseResult(
            id=one["id"],
            verdict=Verdict(one["verdict"]),
            examples=one["examples"],
            tests=tuple(tests[test] for test in one["tests"] if test in tests),
            reason=one["reason"],
            properties=one["properties"],
        )
        for one in data["clauses"]
    }
    unsaid = {
        clause.id: ClauseResult(clause.id, Verdict.UNKNOWN, 0, (), error or clause.reason)
        for clause in judge(contract(), ())
    }
    return Run(
        subject=data["subject"],
        version=data["version"],
        target=path.stem,
        device=data.get("device", ""),
        world=data.get("world", ""),
        profile=data["profile"],
        finished=data["finished"],
        error=error,
        settings=data["settings"],
        complaints=data.get("complaints", ()),
        clauses=[written.get(id_, unsaid[id_]) for id_ in contract()],
        tests=list(tests.values()),
        run_with=data.get("run_with", ""),
        folder=seen_from(ROOT, str(path.parent)),
        scripts={
            test: [found.relative_to(path.parent).as_posix() for found in scripts]
            for test in tests
            if (scripts := scripts_in(path.parent / SCRIPTS / path.stem, test))
        },
    )


def natural(text: str) -> list[tuple[int, str]]:
    """Sort key that puts 2 before 10, wherever the numbers stand in ``text``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


def coverage(runs: Iterable[Run]) -> Generated:
    """What all runs were given, values in their natural order."""
    return {
        feature: {value: counts[value] for value in sorted(counts, key=natural)}
        for feature, counts in merge(run.generated for run in runs).items()
    }

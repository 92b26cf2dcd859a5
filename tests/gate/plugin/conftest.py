"""Judge a subject made of nothing in a pytest run of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

SUBJECT = """
from fixtures.subjects.subject import Capability, Subject
from fixtures.subjects.subject import SubjectError

def load(worlds, device="cpu"):
    return Subject(
        name="nothing", version="1.0+cpu", adapter=("nothing", "Nothing"), worlds=worlds,
        lacks={Capability.MERGE: "nothing 1.0 merges nothing"},
    )
"""

CONFTEST = """
from fixtures.subjects import registry
registry.SUBJECTS["nothing"] = registry.Entry("nothing", ("simulated",))
registry.SUBJECTS["absent"] = registry.Entry("fixtures.subjects.absent", ("forked",))
pytest_plugins = ("gate.plugin",)
"""


@dataclass
class Finished:
    """A pytest run that is over."""

    code: int
    output: str
    verdicts: dict[str, Any]

    def clause(self, id_: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.verdicts["clauses"] if one["id"] == id_)
        return found


@dataclass
class Gate:
    """A folder of properties, and the gate over it."""

    folder: Path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, *arguments: str, subject: str = "nothing") -> Finished:
        verdicts = self.folder / "out" / "verdicts.json"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
                *("--subject", subject, "--verdicts", str(verdicts), "--known-list", "known.toml"),
                *(arguments or (".",)),
            ],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{self.folder}", "COLUMNS": "120"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return Finished(
            done.returncode,
            done.stdout,
            json.loads(verdicts.read_text("utf-8")) if verdicts.exists() else {},
        )

    def paste(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a command line as a person does who reads it and knows nothing else."""
        return subprocess.run(
            line,
            shell=True,
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    gate = Gate(tmp_path)
    gate.write("known.toml", "")
    gate.write("nothing.py", SUBJECT)
    gate.write("conftest.py", CONFTEST)
    gate.write("pytest.ini", "[pytest]\n")
    return gate

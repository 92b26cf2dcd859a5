"""Judge a subject made of nothing in a pytest run of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.configuration import set_hypothesis_home_dir

from fixtures.subjects import registry
from gate import profiles

ROOT = Path(__file__).parents[3]

SUBJECT = """
from fixtures.subjects.subject import Capability, Subject
from fixtures.subjects.subject import SubjectError

def load(worlds, device="cpu"):
    return Subject(
        name="nothing", version="1.0+cpu", adapter=("nothing", "Nothing"), worlds=worlds,
        lacks={Capability.MERGE: "nothing 1.0 merges nothing"},
        stand_ins={"DEC-5", "DEC-6", "DEC-7"}, interpreted={Capability.OWN_MERGE_KERNELS},
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

    pytester: pytest.Pytester

    @property
    def folder(self) -> Path:
        return self.pytester.path

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def run(self, *arguments: str, subject: str = "nothing") -> Finished:
        """Run pytest, in this process unless it is to have workers."""
        verdicts = self.folder / "out" / "verdicts.json"
        arguments = (
            *("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
            *("--subject", subject, "--verdicts", str(verdicts), "--known-list", "known.toml"),
            *(arguments or (".",)),
        )
        if "-n" in arguments:
            done = self.pytester.runpytest_subprocess(*arguments)
        else:
            done = self.pytester.runpytest_inprocess(*arguments, no_reraise_ctrlc=True)
        return Finished(
            int(done.ret),
            f"{done.stdout}\n{done.stderr}",
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
def gate(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    # A run keeps its failures below its own folder, and leaves this process as it was.
    name = hypothesis.settings.get_current_profile_name()
    profile = hypothesis.settings.get_profile(name)
    set_hypothesis_home_dir(pytester.path / ".hypothesis")
    profiles.register()
    monkeypatch.setattr(registry, "SUBJECTS", dict(registry.SUBJECTS))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{pytester.path}")
    monkeypatch.setenv("COLUMNS", "120")
    gate = Gate(pytester)
    gate.write("known.toml", "")
    gate.write("nothing.py", SUBJECT)
    gate.write("conftest.py", CONFTEST)
    gate.write("pytest.ini", "[pytest]\n")
    yield gate
    hypothesis.settings.load_profile(name)
    set_hypothesis_home_dir(None)
    profiles.register()
    hypothesis.settings.register_profile(name, profile)

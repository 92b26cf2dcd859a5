"""Without what is needed, pytest ends in a sentence on what to install."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTEST_NEEDS = ("_pytest", "iniconfig", "packaging", "pluggy", "py", "pygments", "pytest")


def test_a_clone_with_pytest_alone_says_what_to_install(tmp_path: Path) -> None:
    for name in PYTEST_NEEDS:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        file = Path(spec.origin)
        found = file.parent if file.name == "__init__.py" else file
        (tmp_path / found.name).symlink_to(found)
    done = subprocess.run(
        [sys.executable, "-S", "-m", "pytest", "-p", "no:cacheprovider", "--subject", "impl"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    (line,) = done.stdout.split("\n\n")[0].splitlines()
    assert line.startswith(
        "ERROR: filelock, greenlet, hypothesis, jinja2, numpy, rich, tblib, torch, xdist"
    )
    assert "pip install" in line
    assert not done.stdout.partition(line)[2].strip()


def test_every_dependency_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split(r"[<>=]", text)[0] for text in project["dependencies"]} - {"pytest"}
    needed = runpy.run_path(str(ROOT / "conftest.py"))["NEEDED"]
    assert {name.removeprefix("pytest-") for name in names} == set(needed)

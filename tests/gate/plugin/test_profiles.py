"""Profiles draw what they say they draw, wherever they are loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHOW = """
from hypothesis import settings
from gate import profiles
profiles.register()
profiles.load({name!r})
print(settings().derandomize, settings().database is not None)
"""


@pytest.mark.parametrize(
    ("name", "shown"),
    [("dev", "False True"), ("nightly", "False True"), ("ci", "True False")],
)
@pytest.mark.parametrize("variable", ["CI", "NO_CI"])
def test_a_ci_server_changes_no_profile(name: str, shown: str, variable: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW.format(name=name)],
        cwd=ROOT,
        env={**os.environ, variable: "true"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == shown

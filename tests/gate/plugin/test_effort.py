"""A property's effort is its examples, as a multiple of the profile's."""

from __future__ import annotations

import pytest

from gate.exit_codes import ExitCode
from tests.gate.plugin.conftest import Gate

PROPERTIES = """
import pytest
from hypothesis import given, settings, strategies as st
from properties.contract import clause

@clause("LIN-1", effort=0.1)
@given(number=st.integers())
def test_costly(number):
    pass

@clause("LIN-2", effort=2)
@settings(deadline=None)
@given(number=st.integers())
@pytest.mark.parametrize("which", ["a", "b"])
def test_cheap(number, which):
    pass

@clause("LIN-3", effort=0.0001)
@given(number=st.integers())
def test_once(number):
    pass
"""


def test_examples_follow_the_effort_and_the_profile(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES)
    for profile, examples in (("dev", [5, 100, 100, 1]), ("ci", [3, 60, 60, 1])):
        run = gate.run("--hypothesis-profile", profile, ".")
        assert run.code == ExitCode.PASSED
        counts = {test["test"]: test["examples"] for test in run.verdicts["tests"]}
        names = ("costly", "cheap[a]", "cheap[b]", "once")
        assert [counts[f"test_properties.py::test_{name}"] for name in names] == examples


def test_an_effort_of_what_is_one_example_is_refused(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from properties.contract import clause\n\n"
        "@clause('LIN-1', effort=2)\ndef test_plain():\n    pass\n",
    )
    run = gate.run()
    assert run.code == ExitCode.USAGE
    assert "test_plain is given an effort, but is one example" in run.output


@pytest.mark.parametrize("effort", [0, -1])
def test_no_effort_is_refused_when_the_property_is_imported(gate: Gate, effort: int) -> None:
    gate.write("test_properties.py", PROPERTIES.replace("0.0001", str(effort)))
    run = gate.run()
    assert run.code == ExitCode.INTERRUPTED
    assert f"an effort of {effort} is no example" in run.output

"""What a clause rests on: a pass on stand-ins alone has a word of its own, and fails nothing."""

from __future__ import annotations

import pytest

from gate.exit_codes import ExitCode
from tests.gate.plugin.conftest import Gate

PROPERTIES = """
from properties.contract import clause
from fixtures.subjects.subject import Capability

@clause("LIN-1", "DEC-5")
def test_of_two_clauses():
    pass

@clause("DEC-6")
def test_by_a_stand_in():
    pass

@clause("DEC-6", needs=[Capability.MERGE])
def test_by_what_is_lacking():
    raise AssertionError("must not run")

@clause("DEC-7")
def test_by_a_stand_in_as_well():
    pass

@clause("DEC-7", needs=[Capability.OWN_MERGE_KERNELS])
def test_by_a_kernel():
    pass

@clause("LIN-2", needs=[Capability.MERGE])
def test_nothing():
    raise AssertionError("must not run")
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_pass_on_stand_ins_alone_is_called_so(gate: Gate, workers: tuple[str, ...]) -> None:
    gate.write("test_properties.py", PROPERTIES)
    run = gate.run(*workers, ".")

    assert run.code == ExitCode.PASSED
    assert {
        one["id"]: tuple(
            one[key] for key in ("verdict", "rests_on", "ran", "properties", "resting_examples")
        )
        for one in run.verdicts["clauses"]
        if one["tests"]
    } == {
        "LIN-1": ("pass", "own code", 1, 1, 1),
        "LIN-2": ("not applicable", "", 0, 1, 0),
        "DEC-5": ("stand-in", "stand-in", 1, 1, 1),
        "DEC-6": ("stand-in", "stand-in", 1, 2, 1),
        "DEC-7": ("pass", "interpreted", 2, 2, 1),
    }
    by_test = {test["test"].partition("::")[2]: test for test in run.verdicts["tests"]}
    assert by_test["test_of_two_clauses"]["verdict"] == "pass"
    assert by_test["test_of_two_clauses"]["rests_on"] == {"LIN-1": "own code", "DEC-5": "stand-in"}
    rows = {line.split()[0]: line.split()[1:] for line in run.output.splitlines() if line.split()}
    assert rows["LIN-1"] == ["1", "1", "pass", "own", "code"]
    assert rows["DEC-6"][:6] == ["1", "of", "2", "1", "stand-in", "stand-in"]
    assert rows["DEC-7"] == ["2", "1", "of", "2", "pass", "interpreted"]
    assert "clauses 2 pass, 2 stand-in, 1 not applicable" in run.output


def test_what_is_not_asked_for_leaves_a_part(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES)
    run = gate.run("-k", "as_well", ".")

    assert run.code == ExitCode.PASSED
    clause = run.clause("DEC-7")
    assert (clause["verdict"], clause["ran"], clause["properties"]) == ("stand-in", 1, 2)


def test_a_failure_on_a_stand_in_is_a_failure(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES.replace("    pass", "    assert False", 2))
    run = gate.run()

    assert run.code == ExitCode.FAILED
    clause = run.clause("DEC-6")
    assert (clause["verdict"], clause["rests_on"]) == ("fail", "stand-in")

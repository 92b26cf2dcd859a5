"""From the outcome of tests to the verdict on clauses, alone and under xdist."""

from __future__ import annotations

import json

import pytest

from fixtures.subjects.subject import Subject
from gate.exit_codes import ExitCode
from tests.gate.plugin.conftest import Gate

PROPERTIES = """
import pytest
from hypothesis import Phase, assume, given, settings, strategies as st
from properties.contract import clause
from fixtures.subjects.subject import Capability
from fixtures.ranks.errors import RankDied

@clause("LIN-1")
@given(number=st.integers())
def test_passes(subject, number):
    assert subject.name == "nothing"

@clause("LIN-1", "LIN-2")
@settings(max_examples=7)
@given(number=st.integers())
def test_passes_on_two_clauses(number):
    assert number == number

@clause("LIN-3")
def test_is_one_example():
    pass

@clause("MRG-1", needs=[Capability.MERGE])
@given(number=st.integers())
def test_needs_what_is_lacking(subject, number):
    raise AssertionError("must not run")

@clause("LIN-2", needs=[Capability.MERGE])
def test_is_the_part_of_a_clause_that_is_lacking():
    raise AssertionError("must not run")

@clause("GRP-1")
@given(number=st.integers())
def test_rejects_everything(number):
    assume(False)

@clause("DEC-1")
@settings(phases=[Phase.explicit])
@given(number=st.integers())
def test_has_no_example_to_run(number):
    pass

@clause("GRP-2")
@given(number=st.integers(0, 1000))
def test_fails(subject, number):
    assert number < 40, "too many"

@clause("GRP-3")
@given(number=st.integers())
def test_loses_its_ranks(number):
    raise RankDied("rank 1 died", [])

@clause("GRP-4")
def test_cannot_be_set_up(request):
    request.getfixturevalue("no_such_fixture")

@pytest.fixture
def broken():
    raise RuntimeError("broken")

@clause("GRP-5")
def test_is_not_set_up(broken):
    pass

@pytest.fixture
def leaking():
    yield
    raise RuntimeError("leak")

@clause("GRP-6")
def test_is_not_torn_down(leaking):
    pass

def test_is_no_property():
    pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_each_kind_of_outcome_becomes_the_verdict_that_the_contract_names(
    gate: Gate, workers: tuple[str, ...]
) -> None:
    gate.write("test_properties.py", PROPERTIES)
    run = gate.run(*workers, ".")

    assert run.code == ExitCode.FAILED
    assert run.verdicts["finished"]
    assert {
        one["id"]: (one["verdict"], one["examples"])
        for one in run.verdicts["clauses"]
        if one["tests"]
    } == {
        "LIN-1": ("pass", 57),
        "LIN-2": ("pass", 7),
        "LIN-3": ("pass", 1),
        "MRG-1": ("not applicable", 0),
        "GRP-1": ("unknown", 0),
        "DEC-1": ("unknown", 0),
        "GRP-2": ("fail", run.clause("GRP-2")["examples"]),
        "GRP-3": ("unknown", run.clause("GRP-3")["examples"]),
        "GRP-4": ("fail", 1),
        "GRP-5": ("unknown", 0),
        "GRP-6": ("unknown", 1),
    }
    assert run.clause("GRP-2")["reason"].startswith("AssertionError: too many")
    assert run.clause("MRG-1")["reason"] == "nothing 1.0 merges nothing"
    assert run.clause("LIN-2")["reason"] == "nothing 1.0 merges nothing"
    assert run.clause("GRP-3")["reason"] == "RankDied: rank 1 died"
    assert run.clause("GRP-5")["reason"] == "setup failed: RuntimeError: broken"
    assert run.clause("GRP-6")["reason"] == "teardown failed: RuntimeError: leak"
    assert run.clause("ENG-1")["verdict"] == "unknown"
    assert run.clause("ENG-1")["reason"] == "no property"
    assert "verdict on nothing 1.0+cpu" in run.output
    assert "2 not applicable" in run.output


def test_the_header_shows_what_is_judged_and_every_setting(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES)
    run = gate.run("-k", "passes", "--hypothesis-seed", "7", ".")

    assert "subject: nothing 1.0+cpu, device cpu, world simulated, profile dev" in run.output
    assert "seed 7" in run.output
    assert run.verdicts["settings"]["seed"] == "7"
    assert run.verdicts["settings"]["max_examples"] == "50"


def test_a_failure_shows_its_smallest_example_and_the_line_that_repeats_it(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES)
    run = gate.run("-k", "test_fails", ".")

    assert run.clause("ENG-1")["reason"] == run.clause("GRP-3")["reason"] == "not selected"
    assert f"not selected: {len(run.verdicts['clauses']) - 1} clauses" in run.output
    assert "no property" not in run.output
    (test,) = run.verdicts["tests"]
    assert "subject=<nothing 1.0+cpu>" in run.output
    assert "Subject(" not in run.output
    assert test["counterexample"] == "number: 40"
    assert test["repeat"] in run.output
    assert run.output.index("Failing test case") < run.output.index("number: 40")

    again = gate.paste(f"{test['repeat']} --verdicts again.json")
    assert again.returncode == ExitCode.FAILED, again.stdout
    (repeated,) = json.loads((gate.folder / "again.json").read_text("utf-8"))["tests"]
    assert repeated["counterexample"] == "number: 40"
    assert repeated["examples"] <= 2


def test_an_example_that_passes_by_now_says_so(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES)
    (test,) = gate.run("-k", "test_fails", ".").verdicts["tests"]
    gate.write("test_properties.py", PROPERTIES.replace("number < 40", "number < 41"))
    again = gate.paste(test["repeat"])
    assert again.returncode == ExitCode.PASSED, again.stdout
    assert "test_properties.py::test_fails: this example passes now" in again.stdout

    gate.write("test_properties.py", PROPERTIES.replace("assert number < 40,", "assume(False) #"))
    again = gate.paste(test["repeat"])
    assert again.returncode == ExitCode.NOT_JUDGED, again.stdout
    assert "this example passes now" not in again.stdout


def test_the_machine_that_serves_is_told_in_steps_and_repeated_like_any_other(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Subject, "run", Subject.run)
    gate.write(
        "test_properties.py",
        "from properties.test_serving import test_serving\n"
        "from fixtures.subjects.subject import Subject\n"
        "from fixtures.programs import serving\n"
        "def run(subject, layout, program, *args):\n"
        "    assert program is serving.start, 'serves nothing'\n"
        "Subject.run = run\n",
    )
    (test,) = gate.run("--hypothesis-profile", "ci").verdicts["tests"]
    assert test["verdict"] == "fail"
    steps = test["counterexample"].splitlines()
    assert steps[0].startswith("Step 1: start with tp=2 dcp=2 interleave=1, H=2 ")
    assert steps[1].startswith("Step 2: admit request 0 of ")
    assert steps[-1].startswith(f"Step {len(steps)}: serve tokens: ")
    again = gate.paste(f"{test['repeat']} --verdicts again.json")
    assert again.returncode == ExitCode.FAILED, again.stdout
    (repeated,) = json.loads((gate.folder / "again.json").read_text("utf-8"))["tests"]
    assert repeated["reason"] == test["reason"] == "AssertionError: serves nothing"
    assert all(step in again.stdout for step in steps)
    assert repeated["examples"] == 1


def test_only_undecided_tests_are_no_failure_of_the_subject(gate: Gate) -> None:
    gate.write("test_properties.py", PROPERTIES)

    assert gate.run("-k", "passes or loses_its_ranks", ".").code == ExitCode.NOT_JUDGED
    assert gate.run("-k", "passes or rejects", ".").code == ExitCode.NOT_JUDGED
    assert gate.run("-k", "fails or loses_its_ranks", ".").code == ExitCode.FAILED
    assert gate.run("-k", "passes or needs", ".").code == ExitCode.PASSED


def test_a_lost_worker_leaves_its_test_unknown(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "import os\nfrom properties.contract import clause\n\n"
        "@clause('LIN-1')\ndef test_dies():\n    os._exit(3)\n\n"
        "@clause('LIN-2')\ndef test_lives():\n    pass\n",
    )
    run = gate.run("-n", "1", ".")

    assert run.code == ExitCode.NOT_JUDGED
    assert run.clause("LIN-1")["verdict"] == "unknown"
    assert "crashed" in run.clause("LIN-1")["reason"]
    assert run.clause("LIN-2")["verdict"] == "pass"


def test_an_interrupted_run_says_so(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from properties.contract import clause\n\n"
        "@clause('LIN-1')\ndef test_first():\n    pass\n\n"
        "@clause('LIN-2')\ndef test_second():\n    raise KeyboardInterrupt\n",
    )
    run = gate.run()

    assert run.code == ExitCode.INTERRUPTED
    assert not run.verdicts["finished"]
    assert run.clause("LIN-1")["verdict"] == "pass"
    assert (run.clause("LIN-2")["verdict"], run.clause("LIN-2")["reason"]) == ("unknown", "not run")
    assert "(incomplete)" in run.output


def test_once_no_ranks_can_be_started_nothing_more_is_tried(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from properties.contract import clause\n"
        "from fixtures.ranks.errors import CannotStart\n\n"
        "def make(size):\n"
        "    raise CannotStart('importing vllm failed: it is broken\\nat length')\n\n"
        "@clause('LIN-1')\ndef test_first(subject):\n"
        "    subject.worlds._make = make\n    subject.worlds.get(2)\n\n"
        "@clause('LIN-2')\ndef test_second(subject):\n    raise ValueError\n",
    )
    run = gate.run()

    assert run.code == ExitCode.NOT_JUDGED
    reasons = [run.clause(id_)["reason"] for id_ in ("LIN-1", "LIN-2")]
    assert reasons == [
        "CannotStart: importing vllm failed: it is broken",
        "setup failed: no ranks: importing vllm failed: it is broken",
    ]


def test_an_example_is_repeated_by_what_is_selected_in_the_end(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from hypothesis import given\nfrom hypothesis import strategies as st\n"
        "from properties.contract import clause\n\n"
        "@clause('LIN-1')\n@given(st.integers())\n"
        "def test_first(value):\n    assert value < 100\n\n"
        "@clause('LIN-2')\ndef test_second():\n    pass\n",
    )
    line = gate.run("-k", "first", ".").output.rpartition("--reproduce ")[2].split()[0]
    run = gate.run("-k", "first", "--reproduce", line.strip("'"), ".")

    assert run.code == ExitCode.FAILED
    [test] = run.verdicts["tests"]
    assert test["counterexample"] == "value: 100"


def test_an_example_that_is_drawn_while_it_runs_is_told_and_repeated(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from hypothesis import example, given\nfrom hypothesis import strategies as st\n"
        "from properties.contract import clause\n\n"
        "@clause('LIN-1')\n@given(data=st.data(), size=st.integers(1, 3))\n"
        "def test_draws(data, size):\n"
        "    assert data.draw(st.integers(), label='rows') < 100, 'too many'\n\n"
        "@clause('LIN-2')\n@example(value=101)\n@given(value=st.integers(0, 9))\n"
        "def test_is_given_one(value):\n    assert value < 100\n\n"
        "@clause('LIN-3')\n@given(value=st.integers())\n"
        "def test_has_two_failures(value):\n    assert value < 1\n"
        "    if value < 0: raise ExceptionGroup('ranks', [ValueError('rank 0')])\n",
    )
    run = gate.run()
    tests = {test["test"].rpartition("_")[2]: test for test in run.verdicts["tests"]}
    assert tests["draws"]["counterexample"] == "size: 1\nDraw 1 (rows): 100"
    assert " --reproduce " in tests["draws"]["repeat"]
    assert (tests["one"]["counterexample"], tests["one"]["examples"]) == ("value: 101", 1)
    assert "--reproduce" not in tests["one"]["repeat"]
    words = tests["failures"]["counterexample"].split("\n\n")
    assert sorted(words) == ["value: -1", "value: 1"]

    again = gate.paste(tests["draws"]["repeat"])
    assert again.returncode == ExitCode.FAILED, again.stdout
    assert "Draw 1 (rows): 100" in again.stdout

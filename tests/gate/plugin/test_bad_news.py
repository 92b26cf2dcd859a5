"""A failing subject is told of soon, and where to look first."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from gate import profiles
from gate.exit_codes import ExitCode
from gate.shrinking import BUDGET, STOPPED_EARLY
from properties.contract import contract, foundations
from tests.gate.plugin.conftest import Gate

SLOW_TO_SHRINK = """
from hypothesis import given, strategies as st
from properties.contract import clause

@clause("LIN-1")
@given(data=st.data())
def test_shrinks_for_long(data):
    numbers = data.draw(st.lists(st.integers(0, 10**9), min_size=40, max_size=60), "numbers")
    failed = len(set(numbers)) > 20
    with open("ran", "a") as file:
        print("failed" if failed else "passed", file=file)
    assert not failed, "too many numbers"

@clause("LIN-2")
@given(number=st.integers(0, 10**6))
def test_shrinks_at_once(number):
    assert number > 0
"""


def test_the_search_for_a_smaller_example_ends_after_so_many(gate: Gate) -> None:
    gate.write("test_properties.py", SLOW_TO_SHRINK)
    runs = []
    for _ in range(2):
        run = gate.run("--hypothesis-profile", "ci", ".")
        assert run.code == ExitCode.FAILED
        long, at_once = sorted(run.verdicts["tests"], key=lambda test: test["clauses"])
        ran = (gate.folder / "ran").read_text().splitlines()
        (gate.folder / "ran").unlink()
        # Before the search at most the profile's examples, and after it the smallest once more.
        assert BUDGET < len(ran) <= 30 + BUDGET + 1
        assert ran[-1] == "failed"
        assert (long["stopped_early"], at_once["stopped_early"]) == (True, False)
        assert run.output.count(STOPPED_EARLY) == 1
        assert at_once["counterexample"] == "number: 0"
        runs.append((ran, long["counterexample"]))
    assert runs[0] == runs[1]

    again = gate.paste(long["repeat"])
    assert again.returncode == ExitCode.FAILED, again.stdout
    assert "too many numbers" in again.stdout


def test_no_profile_explains() -> None:
    profiles.register()
    for name in profiles.NAMES:
        phases = settings.get_profile(name).phases
        assert Phase.shrink in phases
        assert Phase.explain not in phases


def test_every_family_of_clauses_says_what_it_builds_on() -> None:
    for id_ in contract():
        family = id_.partition("-")[0]
        assert family not in foundations(family)
    assert foundations("DEC") == {"LIN", "GRP", "KVS", "MRG"}


LAYER = """
def load(rank):
    raise IndexError(f"no shard of rank {rank}")
"""

ECHOES = """
from hypothesis import given, strategies as st
from nothing.layer import load
from properties.contract import clause

@clause("MEM-1", "LIN-6")
def test_of_whole_layers():
    load(4)

@clause("GRP-1")
def test_of_the_group():
    load(3)

@clause("LIN-2")
@given(rank=st.integers(0, 9))
def test_of_a_shard(rank):
    load(rank)

@clause("LIN-4")
def test_else():
    assert False, "wrong for another reason"

@clause("LIN-1")
def test_passes():
    pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_failure_that_the_others_build_on_comes_first(
    gate: Gate, workers: tuple[str, ...]
) -> None:
    (gate.folder / "nothing").mkdir()
    (gate.folder / "nothing.py").rename(gate.folder / "nothing" / "__init__.py")
    gate.write("nothing/layer.py", LAYER)
    gate.write("test_properties.py", ECHOES)
    run = gate.run(*workers, ".")

    others = [f"test_properties.py::test_{name}" for name in ("else", "of_the_group")]
    others.append("test_properties.py::test_of_whole_layers")
    assert run.verdicts["look_first"] == [
        {
            "clause": "LIN-2",
            "test": "test_properties.py::test_of_a_shard",
            "may_follow": others,
            "place": "IndexError in load at nothing/layer.py:3",
            "same_place": others[1:],
        }
    ]
    assert (
        "look first at LIN-2 (test_properties.py::test_of_a_shard): 3 other failures may follow "
        "from it; it is IndexError in load at nothing/layer.py:3, as in 2 of them"
    ) in run.output.replace("\n", "")


def test_failures_of_what_builds_on_nothing_are_looked_at_each(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from properties.contract import clause\n\n"
        "@clause('MRG-1')\ndef test_merge():\n    assert False\n\n"
        "@clause('KVS-1')\ndef test_slots():\n    assert False\n\n"
        "@clause('KVS-2', 'DEC-12')\ndef test_both():\n    assert False\n",
    )
    first = gate.run(".").verdicts["look_first"]
    assert {one["clause"]: one["may_follow"] for one in first} == {
        "MRG-1": ["test_properties.py::test_both"],
        "KVS-1": ["test_properties.py::test_both"],
    }


def test_a_run_without_a_failure_names_none(gate: Gate) -> None:
    gate.write(
        "test_properties.py",
        "from properties.contract import clause\n\n@clause('LIN-1')\ndef test_one():\n    pass\n",
    )
    run = gate.run(".")
    assert run.verdicts["look_first"] == []
    assert "look first" not in run.output

"""Examples are shared out completely, evenly, and no longer once one has failed."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.model.layout import Layout
from gate.exit_codes import ExitCode
from gate.shares import Share, whole_id
from tests.gate.plugin.conftest import Gate

ROOT = Path(__file__).parents[3]

PROPERTIES = """
from hypothesis import given, strategies as st
from properties.contract import clause

@clause("LIN-1")
@given(value=st.integers(0, 10_000))
def test_passes(value):
    with open("ran", "a") as file:
        print(value, file=file)

@clause("LIN-2")
@given(value=st.integers(0, 10_000))
def test_fails(value):
    assert value < 100, "too large"

@clause("LIN-3")
@given(data=st.data())
def test_draws(data):
    data.draw(st.integers())
"""


def all_shares(count: int) -> list[Share]:
    return [Share(index, count) for index in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_example_belongs_to_one_share(count: int) -> None:
    sizes = [0] * count
    for tp in range(1, 40):
        for seed in range(50):
            owners = [share.index for share in all_shares(count) if share.has(Layout(tp), seed)]
            assert len(owners) == 1
            sizes[owners[0]] += 1
    assert min(sizes) > 0.8 * sum(sizes) / count


def test_it_does_not_depend_on_the_process() -> None:
    script = """
        from fixtures.model.layout import Layout
        from gate.shares import Share
        print([Share(0, 2).has(Layout(4, 2), seed, "text") for seed in range(64)])
    """
    results = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert results == {f"{[Share(0, 2).has(Layout(4, 2), s, 'text') for s in range(64)]}\n"}


@pytest.mark.parametrize("share", all_shares(3), ids=repr)
def test_a_failure_shrinks_as_if_nothing_were_shared(share: Share) -> None:
    @settings(database=None, derandomize=True, max_examples=300)
    @given(st.integers(0, 10_000))
    def find(value: int) -> None:
        if share.has(value) and value >= 100:
            share.failed()
            raise ValueError(f"{value} is too large")

    with pytest.raises(ValueError, match=r"^100 is too large"):
        find()


def test_a_share_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="share 3 of 3"):
        Share(3, 3)


def test_a_node_id_names_its_property() -> None:
    for whole in ("a.py::test", "a.py::test[x]", "a.py::test[x-y]"):
        name, bracket, rest = whole.partition("[")
        for shared in (
            f"{name}[share 2 of 3{f'-{rest}' if bracket else ']'}",
            f"{name}[{rest[:-1]}-share 2 of 3]" if bracket else whole,
        ):
            assert whole_id(shared) == whole


def test_workers_share_the_examples_of_a_property(gate: Gate) -> None:
    gate.write("test_shared.py", PROPERTIES)
    # Both in processes of their own, as Hypothesis draws constants of whatever modules are loaded.
    alone = gate.run("--hypothesis-profile", "ci", "-k", "passes", "-n", "1", ".")
    ran = (gate.folder / "ran").read_text().split()
    (gate.folder / "ran").unlink()
    shared = gate.run("--hypothesis-profile", "ci", "-k", "passes", "-n", "2", "--shares", "3", ".")
    assert (alone.code, shared.code) == (ExitCode.PASSED, ExitCode.PASSED)
    assert len(shared.verdicts["tests"]) == 3
    assert sorted((gate.folder / "ran").read_text().split()) == sorted(ran)
    assert shared.clause("LIN-1")["examples"] == alone.clause("LIN-1")["examples"] == 30


def test_a_failure_is_that_of_the_whole_property(gate: Gate) -> None:
    gate.write("test_shared.py", PROPERTIES)
    run = gate.run("--shares", "2", "-k", "fails or draws", ".")
    assert run.code == ExitCode.FAILED
    failed = [test for test in run.verdicts["tests"] if test["verdict"] == "fail"]
    assert {test["counterexample"] for test in failed} == {"value: 100"}
    assert {test["repeat"].partition(" --")[0].rpartition(" ")[2] for test in failed} == {
        "test_shared.py::test_fails"
    }
    assert run.clause("LIN-3")["verdict"] == "pass"

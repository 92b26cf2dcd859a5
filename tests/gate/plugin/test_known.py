"""Known lists: what is listed does not fail the run, and hides nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate import known
from gate.exit_codes import ExitCode
from tests.gate.plugin.conftest import Gate

ROOT = Path(__file__).parents[3]
LISTS = ROOT / "properties" / "known"

PROPERTIES = """
import os
from hypothesis import given, strategies as st
from properties.contract import clause

@clause("LIN-2")
def test_fails():
    assert not os.environ.get("BUG"), os.environ["BUG"]

@clause("LIN-3")
@given(number=st.integers(0, 1000))
def test_has_two_bugs(number):
    if os.environ.get("BUG"):
        assert number >= 500, os.environ["BUG"]
        raise ValueError("a second bug")

@clause("LIN-1")
def test_passes():
    pass
"""

ENTRY = """
[[known]]
{target}
match = "shard \\\\d of the bias is wrong"
reason = "the bias is taken from shard 0"
link = "findings/bias.py"
"""


@pytest.fixture
def listed(gate: Gate) -> Gate:
    gate.write("test_properties.py", PROPERTIES)
    gate.write("known/nothing-1.0.toml", ENTRY.format(target='clause = "LIN-2"'))
    return gate


def test_a_listed_failure_is_known_and_the_run_succeeds(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    run = listed.run("-n", "1", "-k", "test_fails or passes", ".")

    assert run.code == ExitCode.PASSED
    assert run.clause("LIN-2")["verdict"] == "known"
    assert run.clause("LIN-2")["reason"] == "the bias is taken from shard 0 (findings/bias.py)"
    assert "1 passed, 1 known" in run.output


def test_another_failure_of_a_listed_clause_is_new(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "the weight is wrong")
    run = listed.run("-k", "test_fails", ".")

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-2")["verdict"] == "fail"


def test_a_second_bug_beside_a_listed_one_is_new(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    test = 'test = "test_properties.py::test_has_two_bugs"'
    listed.write("known/nothing-1.0.toml", ENTRY.format(target=test))
    run = listed.run("-k", "two_bugs", ".")

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-3")["verdict"] == "fail"
    assert run.clause("LIN-3")["reason"].startswith("ValueError: a second bug")
    assert "ValueError: a second bug" in run.output


def test_an_entry_that_does_not_fail_any_more_fails_the_run(listed: Gate) -> None:
    run = listed.run()

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-2")["verdict"] == "pass"
    assert "LIN-2 does not fail as listed any more" in run.output
    assert len(run.verdicts["complaints"]) == 1


def test_an_entry_that_another_shields_is_stale(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both speak of one clause, which goes on to fail as one of them says."""
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    entry = ENTRY.format(target='clause = "LIN-2"')
    listed.write("known/nothing-1.0.toml", entry + entry.replace("of the bias", "of the scale"))
    run = listed.run("-k", "test_fails", ".")

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-2")["verdict"] == "known"
    [complaint] = run.verdicts["complaints"]
    assert "of the scale" in complaint


def test_a_build_between_releases_has_the_list_of_the_one_before(gate: Gate) -> None:
    lists = gate.folder / "lists"
    lists.mkdir()
    for version in ("0.9.0", "0.31.0", "0.33.0"):
        (lists / f"vllm-{version}.toml").touch()
    for version, expected in (
        ("0.31.0+cpu", "0.31.0"),
        ("0.32.1rc0.dev5+g12ab34c", "0.31.0"),
        ("0.34.0", "0.33.0"),
        ("0.8.0", "0.8.0"),
    ):
        assert known.path_of(lists, "vllm", version).name == f"vllm-{expected}.toml"


@pytest.mark.parametrize("path", sorted(LISTS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_entry_links_a_script(path: Path) -> None:
    entries = known.load(path, path.stem.rpartition("-")[2])
    assert entries
    for entry in entries:
        script = ROOT / entry.link
        assert script.is_file(), f"{entry.target} links {entry.link}, which is no file"
        assert script.parent == LISTS / "scripts", f"{entry.target} links {entry.link}"


def test_an_entry_is_not_stale_because_its_test_was_not_selected(listed: Gate) -> None:
    assert listed.run("-k", "passes", ".").code == ExitCode.PASSED


def test_an_entry_of_no_test_fails_a_whole_run(listed: Gate) -> None:
    listed.write(
        "known/nothing-1.0.toml", ENTRY.format(target='test = "test_properties.py::test_gone"')
    )
    run = listed.run()

    assert run.code == ExitCode.FAILED
    assert "test_properties.py::test_gone is no test or clause of any property" in run.output


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ENTRY.format(target='clause = "LIN-99"'), "the contract has no clause LIN-99"),
        (ENTRY.format(target=""), "must name either a clause or a test"),
        (ENTRY.format(target='clause = "LIN-1"\nuntil = "0.9"'), "was known until 0.9"),
        (ENTRY.format(target='clause = "LIN-1"\nsince = "1.1"'), "is known since 1.1 only"),
        (ENTRY.format(target='clause = "LIN-1"\nreazon = "x"'), "unknown key reazon"),
        ('[[known]]\nclause = "LIN-1"\nmatch = ".*"\nreason = "x"\nlink = "x"', "hide new ones"),
        ('[[known]]\nclause = "LIN-1"\nmatch = "x"', "lacks reason, link"),
        ("[[known", "not valid TOML"),
    ],
)
def test_a_wrong_list_is_refused_in_a_sentence(gate: Gate, text: str, sentence: str) -> None:
    gate.write("test_properties.py", PROPERTIES)
    gate.write("known/nothing-1.0.toml", text)
    run = gate.run()

    assert run.code == ExitCode.USAGE
    assert "nothing-1.0.toml" in run.output
    assert sentence in run.output

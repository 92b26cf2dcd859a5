"""The known list: what is listed does not fail the run, and hides nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.version import Version

from fixtures.subjects import registry
from gate import known_list
from gate.exit_codes import ExitCode
from gate.known import Entry
from tests.gate.plugin.conftest import Gate

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "properties" / "scripts"

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

TWO_BUGS = 'test = "test_properties.py::test_has_two_bugs"'
ENTRY = """
[[nothing]]
{target}
match = 'shard \\d of the bias is wrong'
reason = "the bias is taken from shard 0"
link = "findings/bias.py"
since = "0.9"
class = "bug"
hits = "who has a bias"
"""


@pytest.fixture
def listed(gate: Gate) -> Gate:
    gate.write("test_properties.py", PROPERTIES)
    gate.write("known.toml", ENTRY.format(target='clause = "LIN-2"'))
    return gate


def test_a_listed_failure_is_known_and_the_run_succeeds(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    run = listed.run("-n", "1", "-k", "test_fails or passes", ".")

    assert run.code == ExitCode.PASSED
    assert run.clause("LIN-2")["verdict"] == "known"
    assert run.clause("LIN-2")["class"] == "bug"
    reason = "bug: the bias is taken from shard 0 (findings/bias.py)"
    assert run.clause("LIN-2")["reason"] == reason
    assert "1 passed, 1 known" in run.output
    assert "clauses 1 pass, 1 known: bug;" in run.output


def test_another_failure_of_a_listed_clause_is_new(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "the weight is wrong")
    run = listed.run("--hypothesis-profile", "ci", "-k", "test_fails", ".")

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-2")["verdict"] == "fail"


def test_a_second_bug_beside_a_listed_one_is_new(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    listed.write("known.toml", ENTRY.format(target=TWO_BUGS + "\nwhen = 'number < 500'"))
    run = listed.run("-k", "two_bugs", ".")

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-3")["verdict"] == "fail"
    assert run.clause("LIN-3")["reason"].startswith("ValueError: a second bug")
    assert "ValueError: a second bug" in run.output


def test_examples_at_a_known_failure_are_counted_apart(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    listed.write("test_properties.py", PROPERTIES.replace("raise ValueError", "assert True or"))
    listed.write("known.toml", ENTRY.format(target=TWO_BUGS + "\nwhen = 'number < 500'"))
    run = listed.run("-k", "two_bugs", ".")

    assert run.code == 0
    [result] = [one for one in run.verdicts["tests"] if one["test"].endswith("two_bugs")]
    assert result["verdict"] == "known"
    assert result["known_examples"] > 0
    assert result["examples"] > 0
    # At most: a sampling run may find fewer than it may look for.
    assert result["examples"] + result["known_examples"] <= 100


def test_an_example_that_the_entry_does_not_mean_is_new(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    listed.write("known.toml", ENTRY.format(target=TWO_BUGS + "\nwhen = 'number < 10'"))
    run = listed.run("-k", "two_bugs", ".")

    assert run.code == 1
    assert run.clause("LIN-3")["verdict"] == "fail"


def test_a_condition_speaks_of_what_is_drawn_under_a_label(
    listed: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUG", "shard 1 of the bias is wrong")
    drawn = "number = data.draw(st.integers(0, 1000), 'one')"
    drawing = PROPERTIES.replace("number=st.integers(0, 1000)", "data=st.data()")
    drawing = drawing.replace("two_bugs(number):", f"two_bugs(data):\n    {drawn}")
    listed.write("test_properties.py", drawing.replace("raise ValueError", "assert True or"))
    listed.write("known.toml", ENTRY.format(target=TWO_BUGS + "\nwhen = 'one < 500'"))
    assert listed.run("-k", "two_bugs", ".").code == 0

    listed.write("known.toml", ENTRY.format(target=TWO_BUGS + "\nwhen = 'two < 500'"))
    run = listed.run("-k", "two_bugs", ".")
    assert run.code != 0
    assert "when = 'two < 500' cannot be evaluated" in run.output


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("TWO_BUGS", "has examples, of which any other that fails so would be hidden"),
        ("TWO_BUGS\nwhen = 'rows == 1'", "when asks for rows, but"),
        ('clause = "LIN-2"\nwhen = "rows == 1"', "has no examples: leave when out"),
    ],
)
def test_a_condition_that_does_not_go_with_its_test_is_refused(
    listed: Gate, target: str, sentence: str
) -> None:
    listed.write("known.toml", ENTRY.format(target=target.replace("TWO_BUGS", TWO_BUGS)))
    run = listed.run()
    assert run.code == 4
    assert sentence in run.output


def test_an_entry_that_does_not_fail_any_more_fails_the_run(listed: Gate) -> None:
    assert listed.run("--hypothesis-profile", "dev", ".").code == ExitCode.PASSED
    run = listed.run("--hypothesis-profile", "ci", ".")

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
    listed.write("known.toml", entry + entry.replace("of the bias", "of the scale"))
    run = listed.run("--hypothesis-profile", "ci", "-k", "test_fails", ".")

    assert run.code == ExitCode.FAILED
    assert run.clause("LIN-2")["verdict"] == "known"
    [complaint] = run.verdicts["complaints"]
    assert "of the scale" in complaint


VERSIONS = """
[[vllm]]
test = "old"
match = "x"
reason = "x"
link = "x"
class = "latent"
why = "x"
since = "0.26.0"
until = "0.28.0"

[[vllm]]
test = "lasting"
match = "x"
reason = "x"
link = "x"
class = "latent"
why = "x"
since = "0.27.1"
"""


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.25.0", []),
        ("0.26.0", ["old"]),
        ("0.27.0", ["old"]),
        ("0.27.1rc1", ["old"]),
        ("0.27.1+cpu", ["old", "lasting"]),
        ("0.27.2.dev5+g12ab34c", ["old", "lasting"]),
        ("0.28.0rc0", ["old", "lasting"]),
        ("0.28.0", ["lasting"]),
        ("0.28.0+cpu", ["lasting"]),
        ("0.33.1.dev3", ["lasting"]),
        ("1.0", ["lasting"]),
    ],
)
def test_a_version_fails_like_the_release_before_it(
    tmp_path: Path, version: str, expected: list[str]
) -> None:
    path = tmp_path / "known.toml"
    path.write_text(VERSIONS)
    entries = known_list.load(path, ("vllm",))["vllm"]
    assert [entry.target for entry in entries if entry.applies_to(Version(version))] == expected


@pytest.fixture(scope="module")
def vllm() -> Sequence[Entry]:
    return known_list.load(ROOT / "properties" / "known.toml", registry.SUBJECTS)["vllm"]


def test_every_entry_links_a_script(vllm: Sequence[Entry]) -> None:
    scripts = {path.relative_to(ROOT).as_posix() for path in SCRIPTS.glob("*.py")}
    linked = {entry.link for entry in vllm}
    assert linked <= scripts


def test_every_entry_speaks_of_a_property(vllm: Sequence[Entry]) -> None:
    """A run complains of an entry without one, but of those of its own version alone."""
    for entry in vllm:
        if entry.test:
            path, _, name = entry.test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8"), entry.test


def test_no_version_has_an_entry_twice(vllm: Sequence[Entry]) -> None:
    for version in {entry.since for entry in vllm}:
        entries = [(e.target, e.match, e.when) for e in vllm if e.applies_to(version)]
        assert len(entries) == len(set(entries))


def test_an_entry_is_not_stale_because_its_test_was_not_selected(listed: Gate) -> None:
    assert listed.run("-k", "passes", ".").code == ExitCode.PASSED


def test_an_entry_of_no_test_fails_a_whole_run(listed: Gate) -> None:
    listed.write("known.toml", ENTRY.format(target='test = "test_properties.py::test_gone"'))
    run = listed.run()

    assert run.code == ExitCode.FAILED
    assert "test_properties.py::test_gone is no test or clause of any property" in run.output


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ENTRY.format(target='clause = "LIN-99"'), "the contract has no clause LIN-99"),
        (ENTRY.format(target=""), "must name either a clause or a test"),
        (
            ENTRY.format(target='clause = "LIN-1"\nuntil = "0.9"'),
            "entry 1 of [[nothing]] (LIN-1) applies to no version: until, 0.9, must be later",
        ),
        (
            ENTRY.format(target='clause = "LIN-1"\nuntil = "soon"'),
            "is dated by 'soon': write a version",
        ),
        (ENTRY.format(target='clause = "LIN-1"\nuntil = ""'), "has an empty until"),
        ('[[nowhere]]\nclause = "LIN-1"', "nowhere is no table of entries: begin each by"),
        ("nothing = [1]", "entry 1 of [[nothing]] is no table"),
        (ENTRY.format(target='clause = "LIN-1"\nreazon = "x"'), "unknown key reazon"),
        (
            ENTRY.format(target='clause = "LIN-1"').replace("shard \\d of the bias is wrong", ".*"),
            "hide new ones",
        ),
        ('[[nothing]]\nclause = "LIN-1"\nmatch = "x"', "lacks class, reason, link, since"),
        (
            ENTRY.format(target='clause = "LIN-1"').replace('"bug"', '"taste"'),
            "is of class 'taste': choose among bug, latent, divergence",
        ),
        (
            ENTRY.format(target='clause = "LIN-1"').replace('"bug"', '"latent"'),
            "is of class latent, so it needs why and no hits",
        ),
        (ENTRY.format(target='clause = "LIN-1"\nwhen = "rows =="'), "is no Python expression"),
        (
            ENTRY.format(target='clause = "LIN-1"\nwhen = "len([]) == 0"'),
            "asks for no argument of the property",
        ),
        (
            ENTRY.format(target='clause = "LIN-1"\nwhen = "case.__class__"'),
            "reads __class__, which is nobody else's",
        ),
        (ENTRY.format(target='clause = "LIN-1"\nwhen = "(lambda: case)()"'), "has a Lambda"),
        ("[[nothing", "not valid TOML"),
    ],
)
def test_a_wrong_list_is_refused_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(known_list.KnownListError) as raised:
        known_list.load(path, ("nothing",))
    assert str(raised.value).startswith(f"{path}: ")
    assert sentence in str(raised.value)


def test_an_entry_may_be_of_one_device(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    for device, where in (("cuda", ("cuda",)), ("cpu", ("cpu",)), ("", ("cpu", "cuda"))):
        line = f'device = "{device}"' if device else ""
        path.write_text(ENTRY.format(target='clause = "LIN-2"') + line)
        (entry,) = known_list.load(path, ["nothing"])["nothing"]
        assert tuple(name for name in ("cpu", "cuda") if entry.is_of(name)) == where
    path.write_text(ENTRY.format(target='clause = "LIN-2"') + 'device = "tpu"')
    with pytest.raises(known_list.KnownListError, match="is of the device 'tpu': write cpu or"):
        known_list.load(path, ["nothing"])

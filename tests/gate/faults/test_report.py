"""Outcomes and shares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gate.faults import recorded
from gate.faults.fault import Seed
from gate.faults.outcome import Fate, Outcome, judge
from gate.faults.report import Report, share
from gate.results import TestResult, Verdict

SEED = Seed("lin-2-x", ("LIN-2",), "It is wrong.", {})
ARGUED = Seed("lin-2-y", ("LIN-2",), "It is wrong.", {}, "It changes nothing.")


def result(verdict: Verdict, reason: str = "") -> TestResult:
    return TestResult("t.py::test", ("LIN-1", "LIN-2"), verdict, 7, reason=reason)


@pytest.mark.parametrize(
    ("seed", "results", "fate"),
    [
        (SEED, [result(Verdict.PASS), result(Verdict.FAIL, "AssertionError: no")], Fate.KILLED),
        (SEED, [result(Verdict.PASS), result(Verdict.KNOWN)], Fate.SURVIVED),
        (ARGUED, [result(Verdict.PASS)], Fate.EQUIVALENT),
        (ARGUED, [result(Verdict.FAIL)], Fate.KILLED),
        (SEED, [result(Verdict.UNKNOWN, "TimedOut: after 300 s")], Fate.HUNG),
        (SEED, [result(Verdict.UNKNOWN, "RankDied: rank 1")], Fate.HUNG),
        (SEED, [result(Verdict.UNKNOWN, "setup failed: ...")], Fate.NOT_RUN),
        (SEED, [result(Verdict.NOT_APPLICABLE, "lacks it")], Fate.NOT_RUN),
        (SEED, [], Fate.NOT_RUN),
    ],
)
def test_the_fate_of_a_fault(seed: Seed, results: list[TestResult], fate: Fate) -> None:
    outcome = judge(seed, results, 1.5)
    assert outcome.fate is fate
    assert outcome.seconds == 1.5
    if fate is Fate.KILLED:
        assert (outcome.by, outcome.clause) == ("t.py::test", "LIN-2")
    else:
        assert outcome.by == ""


def outcome(name: str, fate: Fate, clause: str = "LIN-2") -> Outcome:
    return Outcome(name, (clause,), "It is wrong.", fate, reason="a | b")


def report(*outcomes: Outcome) -> Report:
    return Report("impl", "1", "faults", outcomes, {}, ())


def test_equivalent_faults_do_not_count_and_everything_else_does() -> None:
    outcomes = [outcome(fate.name, fate) for fate in Fate]
    assert str(share(outcomes)) == "1/5"


def test_a_share_that_fell_is_named() -> None:
    now = report(
        outcome("a", Fate.KILLED), outcome("b", Fate.SURVIVED), outcome("c", Fate.KILLED, "GRP-1")
    )
    recorded = {"total": 0.7, "shares": {"LIN-2": 0.5, "GRP-1": 1.0, "COM-2": 1.0}}
    assert now.fallen_below(recorded) == [
        "2/3 of the faults on impl were killed, fewer than the recorded share of 70.0%",
        "COM-2 has no faults any more",
    ]
    recorded = {"total": 0.6, "shares": {"LIN-2": 0.6}}
    assert now.fallen_below(recorded) == [
        "LIN-2: 1/2 faults killed, fewer than the recorded share of 60.0%"
    ]


def test_the_report_is_written_twice_the_same(tmp_path: Path) -> None:
    shown = report(outcome("a", Fate.SURVIVED), outcome("b", Fate.KILLED, "GRP-1"))
    shown.write(tmp_path)
    written = json.loads((tmp_path / "faults-impl.json").read_text())
    assert written["shares"] == {"LIN-2": "0/1", "GRP-1": "1/1"}
    assert "seconds" not in written["outcomes"][0]
    text = (tmp_path / "faults-impl.md").read_text()
    assert "| a | survived | It is wrong. | a \\| b |" in text
    assert "1/2 killed (50.0%); 1 killed, 1 survived" in text


def test_recorded_shares_are_read_back_and_leave_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "PATH", tmp_path / "recorded.toml")
    shown = report(
        outcome("a", Fate.KILLED), outcome("b", Fate.KILLED), outcome("c", Fate.SURVIVED)
    )
    recorded.write("impl", "faults", shown.shares_to_record())
    recorded.write("vllm", "faults", {"total": 1.0, "shares": {}})
    recorded.write("impl", "mutants", {"total": 0.5, "shares": {"impl.layout": 0.5}})
    assert recorded.read("impl", "faults") == {"total": 0.6666, "shares": {"LIN-2": 0.6666}}
    assert recorded.read("impl", "mutants")["shares"] == {"impl.layout": 0.5}
    assert shown.fallen_below(recorded.read("impl", "faults")) == []

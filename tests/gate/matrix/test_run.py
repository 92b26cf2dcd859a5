"""Targets one after the other: codes, resumption, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gate import run_settings
from gate.judgement import Judgement
from gate.matrix import __main__ as command
from gate.matrix import run
from gate.matrix.run import Code, Plan
from gate.matrix.target import Target

Say = Callable[[str], None]
Judge = Callable[[Plan, Target, Say], Code]


def _write(plan: Plan, target: Target, code: Code, complete: bool = True) -> None:
    Judgement(
        target.subject,
        target.version,
        "cpu",
        "forked",
        plan.profile,
        {"source": run_settings.source()},
        complete=complete,
        exit_code=code,
    ).write(plan.verdict_of(target))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the targets in the order in which they were judged; ``0.28.0`` fails."""
    names: list[str] = []

    def judge(plan: Plan, target: Target, say: Say) -> Code:
        names.append(str(target))
        code = Code.NEW_FAILURE if target.version == "0.28.0" else Code.PASS
        if target.version == "0.29.0":
            _write(plan, target, code, complete=False)
            raise KeyboardInterrupt
        if target.version == "0.30.0":
            run._write_unjudged(plan, target, "no such release")
            return Code.NOT_JUDGED
        _write(plan, target, code)
        return code

    monkeypatch.setattr(run, "_judge", judge)
    return names


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        (["impl"], Code.PASS),
        (["vllm==0.28.0", "impl"], Code.NEW_FAILURE),
        (["vllm==0.30.0", "impl"], Code.NOT_JUDGED),
        (["vllm==0.30.0", "vllm==0.28.0"], Code.NEW_FAILURE),
    ],
)
def test_the_gravest_outcome_is_the_code_and_stops_nothing(
    judged: list[str], tmp_path: Path, targets: list[str], code: Code
) -> None:
    assert command.main([*targets, "--out", str(tmp_path)]) == code
    assert judged == targets
    assert (tmp_path / "index.html").exists()


def test_a_release_that_cannot_be_judged_is_in_the_report_with_its_error(
    judged: list[str], tmp_path: Path
) -> None:
    command.main(["vllm==0.30.0", "--out", str(tmp_path)])
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "- vllm 0.30.0 was **not judged**: no such release" in summary


def test_an_interrupted_run_reports_itself_incomplete_and_can_be_resumed(
    judged: list[str], tmp_path: Path
) -> None:
    arguments = ["impl", "vllm==0.28.0", "vllm==0.29.0", "vllm==0.31.0", "--out", str(tmp_path)]
    assert command.main(arguments) == Code.NOT_JUDGED
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "**Incomplete**: vllm==0.31.0 not judged yet" in summary
    assert "**Incomplete**: not every property ran on vllm 0.29.0" in summary

    judged.clear()
    arguments.remove("vllm==0.29.0")
    assert command.main([*arguments, "--resume"]) == Code.NEW_FAILURE
    assert judged == ["vllm==0.31.0"]
    assert "Incomplete" not in (tmp_path / "summary.md").read_text("utf-8")


def test_a_fresh_run_reports_no_verdict_of_the_one_before(
    judged: list[str], tmp_path: Path
) -> None:
    Judgement("impl", "0.1.0", "cpu", "simulated", "dev", {}).write(tmp_path / "impl.json")
    command.main(["vllm==0.29.0", "impl", "--out", str(tmp_path)])
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "**Incomplete**: impl not judged yet" in summary


def test_verdicts_of_other_sources_or_another_profile_are_not_resumed(
    judged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["impl", "--resume", "--out", str(tmp_path)]
    command.main([*arguments, "--profile", "ci"])
    command.main([*arguments, "--profile", "nightly"])
    monkeypatch.setattr(run_settings, "source", lambda: "changed")
    command.main([*arguments, "--profile", "nightly"])
    assert judged == ["impl"] * 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "is nothing that can be judged"),
        (["impl", "impl"], "two targets would write impl.json"),
        (["impl", "--compare"], "--compare takes a base and a patch"),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == Code.NOT_JUDGED
    assert sentence in capsys.readouterr().err


def test_why_a_target_is_not_judged_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["vllm==0.0.0", "--out", str(tmp_path)]) == Code.NOT_JUDGED
    assert "not judged: vllm==0.0.0 cannot be installed" in capsys.readouterr().err

"""Targets one after the other: codes, resumption, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fixtures.subjects.subject import Basis
from gate import run_settings
from gate.__main__ import main
from gate.commands import matrix
from gate.exit_codes import ExitCode
from gate.judge import runs
from gate.judge.releases import REFERENCE
from gate.judge.runs import Plan
from gate.judge.targets import Target
from gate.judgement import Judgement
from gate.results import TestResult, Verdict

Say = Callable[[str], None]
Judge = Callable[[Plan, Target, Say], ExitCode]


def _write(
    plan: Plan,
    target: Target,
    code: ExitCode,
    finished: bool = True,
    results: Sequence[TestResult] = (),
) -> None:
    Judgement(
        target.subject,
        target.version,
        "cpu",
        "forked",
        plan.profile,
        {"source": run_settings.source()},
        finished=finished,
        exit_code=code,
        results={result.test: result for result in results},
    ).write(plan.verdict_of(target))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the targets in the order in which they were judged; ``0.28.0`` fails."""
    names: list[str] = []

    def judge(plan: Plan, target: Target, say: Say) -> ExitCode:
        names.append(str(target))
        code = ExitCode.FAILED if target.version == "0.28.0" else ExitCode.PASSED
        if target.version == "0.29.0":
            _write(plan, target, code, finished=False)
            raise KeyboardInterrupt
        if target.version == "0.30.0":
            runs._write_unjudged(plan, target, "no such release")
            return ExitCode.NOT_JUDGED
        _write(plan, target, code)
        return code

    monkeypatch.setattr(runs, "_judge", judge)
    return names


def test_with_the_plug_in_each_vllm_is_judged_twice(judged: list[str], tmp_path: Path) -> None:
    main(["judge", "vllm==0.33.0", "impl", "--with-plugin", "--out", str(tmp_path)])
    assert judged == ["vllm==0.33.0", "vllm+plugin==0.33.0", "impl"]


def test_the_plug_in_is_compared_with_its_base(judged: list[str], tmp_path: Path) -> None:
    main(["compare", "vllm==0.33.0", "--with-plugin", "--out", str(tmp_path)])
    assert judged == ["vllm==0.33.0", "vllm+plugin==0.33.0"]


@pytest.mark.parametrize(
    ("targets", "code"),
    [
        (["impl"], ExitCode.PASSED),
        (["vllm==0.28.0", "impl"], ExitCode.FAILED),
        (["vllm==0.30.0", "impl"], ExitCode.NOT_JUDGED),
        (["vllm==0.30.0", "vllm==0.28.0"], ExitCode.FAILED),
    ],
)
def test_the_gravest_outcome_is_the_code_and_stops_nothing(
    judged: list[str], tmp_path: Path, targets: list[str], code: ExitCode
) -> None:
    assert main(["judge", *targets, "--out", str(tmp_path)]) == code
    assert judged == targets
    assert (tmp_path / "index.html").exists()


def test_a_release_that_cannot_be_judged_is_in_the_report_with_its_error(
    judged: list[str], tmp_path: Path
) -> None:
    main(["judge", "vllm==0.30.0", "--out", str(tmp_path)])
    assert "was **not judged**: no such release" in (tmp_path / "summary.md").read_text("utf-8")


def test_an_interrupted_run_reports_itself_incomplete_and_can_be_resumed(
    judged: list[str], tmp_path: Path
) -> None:
    targets = ["impl", "vllm==0.28.0", "vllm==0.29.0", "vllm==0.31.0"]
    arguments = ["judge", *targets, "--out", str(tmp_path)]
    assert main(arguments) == ExitCode.INTERRUPTED
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "**Incomplete**: vllm==0.31.0 not judged yet" in summary
    assert "**Incomplete**: not every property ran on vllm 0.29.0" in summary

    judged.clear()
    arguments.remove("vllm==0.29.0")
    assert main([*arguments, "--resume"]) == ExitCode.FAILED
    assert judged == ["vllm==0.31.0"]
    assert "Incomplete" not in (tmp_path / "summary.md").read_text("utf-8")


def test_a_fresh_run_reports_no_verdict_of_the_one_before(
    judged: list[str], tmp_path: Path
) -> None:
    Judgement("impl", "0.1.0", "cpu", "simulated", "dev", {}).write(tmp_path / "impl.json")
    main(["judge", "vllm==0.29.0", "impl", "--out", str(tmp_path)])
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert "**Incomplete**: impl not judged yet" in summary


def test_verdicts_of_other_sources_or_another_profile_are_not_resumed(
    judged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["judge", "impl", "--resume", "--out", str(tmp_path)]
    main([*arguments, "--profile", "ci"])
    main([*arguments, "--profile", "nightly"])
    monkeypatch.setattr(run_settings, "source", lambda: "changed")
    main([*arguments, "--profile", "nightly"])
    assert judged == ["impl"] * 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "is nothing that can be judged"),
        (["impl", "impl"], "two targets would write impl.json"),
        (["impl", "--compare"], "a base and a patch are compared, but 1 targets are named"),
    ],
)
def test_a_wrong_question_is_answered_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["judge", *arguments])
    assert ended.value.code == ExitCode.USAGE
    assert sentence in capsys.readouterr().err


def test_why_a_target_is_not_judged_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["judge", "vllm==0.0.0", "--out", str(tmp_path)]) == ExitCode.NOT_JUDGED
    assert "not judged: vllm==0.0.0 cannot be installed" in capsys.readouterr().err


def test_what_is_named_by_nobody_is_the_reference_and_impl(
    judged: list[str], tmp_path: Path
) -> None:
    main(["judge", "--resume", "--out", str(tmp_path)])
    assert judged == [f"vllm=={REFERENCE}", "impl"]


def test_the_matrix_is_of_impl_and_every_release(
    judged: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "RELEASES", ("0.28.0", "0.32.0"))
    assert main(["matrix", "--out", str(tmp_path)]) == ExitCode.FAILED
    assert judged == ["impl", "vllm==0.28.0", "vllm==0.32.0"]


@pytest.mark.parametrize("command", [["compare"], ["judge", "--compare"]])
@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ("0.31.0", ExitCode.PASSED),
        ("0.30.0", ExitCode.NOT_JUDGED),
        ("0.29.0", ExitCode.INTERRUPTED),
    ],
)
def test_a_comparison_fails_on_nothing_but_changes(
    judged: list[str], tmp_path: Path, command: list[str], patch: str, code: ExitCode
) -> None:
    """The base fails, and the patch is judged just like it."""
    arguments = ["vllm==0.28.0", f"vllm=={patch}", "--out", str(tmp_path)]
    assert main([*command, *arguments]) == code


def test_a_comparison_names_the_clauses_that_rest_on_stand_ins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = TestResult("t::x", ("DEC-6",), Verdict.PASS, 7, rests_on={"DEC-6": Basis.STAND_IN})

    def judge(plan: Plan, target: Target, say: Say) -> ExitCode:
        _write(plan, target, ExitCode.PASSED, results=(result,))
        return ExitCode.PASSED

    monkeypatch.setattr(runs, "_judge", judge)
    arguments = ["compare", "vllm==0.31.0", "vllm==0.32.0", "--out", str(tmp_path)]
    assert main(arguments) == ExitCode.PASSED
    assert "stand-in, no word on vllm 0.32.0: DEC-6\n" in capsys.readouterr().out


def test_the_command_line_alone_tells_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.PASSED
    told = capsys.readouterr().out
    assert all(f"\n    {name} " in told for name in ("judge", "compare", "matrix", "publish"))

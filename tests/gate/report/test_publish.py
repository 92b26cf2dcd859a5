"""A finished matrix is published as two pages, and an unfinished one not at all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gate.__main__ import main
from gate.exit_codes import ExitCode
from gate.judgement import Judgement
from gate.report import pages, verdict_file
from gate.results import TestResult, Verdict


def _matrix(
    folder: Path,
    finished: bool = True,
    waiting: tuple[str, ...] = (),
    run_with: str = "PYTHONPATH=.tox/vllm/vllm-0.32.0 .tox/judge/bin/python",
) -> Path:
    path = folder / "vllm-0.32.0.json"
    failure = TestResult("test_x.py::test_y", ("LIN-1",), Verdict.FAIL, 1)
    Judgement(
        *("vllm", "0.32.0", "cpu", "forked", "ci", {}),
        run_with=run_with,
        finished=finished,
        results={failure.test: failure},
    ).write(path)
    pages.write(folder, [verdict_file.read(path)], waiting)
    script = folder / "scripts" / "vllm-0.32.0" / "test_x-test_y.py"
    script.parent.mkdir(parents=True)
    script.touch()
    pages.write(folder, [verdict_file.read(path)], waiting)
    return folder


def test_of_a_finished_matrix_the_page_and_the_summary_are_kept(tmp_path: Path) -> None:
    source, target = _matrix(tmp_path / "reports"), tmp_path / "docs" / "matrix"
    target.mkdir(parents=True)
    (target / "summary.md").write_text("of the matrix before")
    with (source / "summary.md").open("a") as summary:
        summary.write("- DEC-9 **not applicable**: on a GPU, where it is not judged yet.\n")
    assert main(["publish", "--from", str(source), "--to", str(target)]) == 0
    assert {path.name for path in target.rglob("*")} == {"index.html", "summary.md"}
    assert "vllm 0.32.0" in (target / "summary.md").read_text("utf-8")
    # It stays with the run.
    assert "test_x-test_y.py" in (source / "index.html").read_text("utf-8")
    assert "test_x-test_y.py" not in (target / "index.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"finished": False}, "is incomplete"),
        ({"waiting": ("vllm==0.33.0",)}, "is incomplete"),
        ({"run_with": sys.executable}, "is on no other machine"),
        ({"run_with": "PYTHONPATH=.tox:../vllm python"}, "is on no other machine"),
    ],
)
def test_an_unfinished_matrix_or_one_of_this_machine_alone_is_refused_and_replaces_nothing(
    tmp_path: Path,
    given: dict[str, Any],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, target = _matrix(tmp_path / "reports", **given), tmp_path / "published"
    target.mkdir()
    (target / "kept").touch()
    with pytest.raises(SystemExit, match=str(ExitCode.USAGE.value)):
        main(["publish", "--from", str(source), "--to", str(target)])
    assert sentence in capsys.readouterr().err
    assert [path.name for path in target.iterdir()] == ["kept"]

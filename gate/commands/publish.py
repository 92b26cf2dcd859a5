"""Keep the page and the summary of a finished matrix where they are published."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gate.exit_codes import ExitCode
from gate.paste import ROOT
from gate.report import pages, verdict_file
from gate.report.verdict_file import Run, VerdictFileError, natural

_PAGES = ("index.html", "summary.md")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the matrix is, and where it goes."""
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        default=Path("reports/matrix"),
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--to", type=Path, default=ROOT / "docs" / "matrix", help="(default: docs/matrix)"
    )


def run(options: argparse.Namespace) -> ExitCode:
    """Write the page and the summary.

    Raises:
        pytest.UsageError: The matrix is not finished.
    """
    try:
        runs = _finished(options.source)
    except VerdictFileError as error:
        raise pytest.UsageError(str(error)) from error
    options.to.mkdir(parents=True, exist_ok=True)
    # The scripts of a run's failures stay with it: what is published says how to repeat them.
    pages.write(options.to, [replace(run, scripts={}) for run in runs])
    print(f"the page and the summary of {len(runs)} verdicts are in {options.to}")
    return ExitCode.PASSED


def _finished(folder: Path) -> list[Run]:
    """The runs whose verdict files are in ``folder``.

    Raises:
        VerdictFileError: There are none, one is not finished or repeats failures by absolute
            paths, or a page is missing or says that a target has not been judged.
    """
    verdicts = sorted(folder.glob("*.json"), key=lambda path: natural(path.stem))
    if not verdicts:
        raise VerdictFileError(f"{folder} holds no verdicts: run `tox run -e matrix` first")
    if missing := [name for name in _PAGES if not (folder / name).is_file()]:
        raise VerdictFileError(f"{folder} lacks {', '.join(missing)}: end it with --resume")
    runs = [verdict_file.read(path) for path in verdicts]
    for path, run in zip(verdicts, runs, strict=True):
        # That a release cannot be judged is a result; that a run was cut short is none.
        if not run.finished and not run.error:
            raise VerdictFileError(f"{path} is incomplete: end it with --resume")
        if re.search(r"(^|[ :='])(/|\.\./)", run.run_with):
            raise VerdictFileError(
                f"{path} was written by {run.run_with}, which is on no other machine: judge with "
                f"an environment and a vLLM below {ROOT}"
            )
    summary = (folder / "summary.md").read_text("utf-8")
    if re.search(r"^\*\*Incomplete\*\*: .* not judged yet\.$", summary, re.MULTILINE):
        raise VerdictFileError(f"{folder} is incomplete: end it with --resume")
    return runs

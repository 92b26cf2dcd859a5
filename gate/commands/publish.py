"""Copy a finished matrix to where it is published."""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import pytest

from gate.exit_codes import ExitCode
from gate.paste import ROOT
from gate.report import pages, verdict_file
from gate.report.verdict_file import SCRIPTS, VerdictFileError, natural

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
    """Copy verdicts, pages and scripts.

    Raises:
        pytest.UsageError: The matrix is not finished, or other files are where it would go.
    """
    try:
        verdicts = _finished(options.source)
    except VerdictFileError as error:
        raise pytest.UsageError(str(error)) from error
    if options.to.exists():
        if foreign := sorted({path.name for path in options.to.iterdir()} - _published(options.to)):
            raise pytest.UsageError(
                f"{options.to} would be replaced, but holds {', '.join(foreign[:3])}, which no "
                f"matrix has: name a folder that is new or holds a published matrix"
            )
        shutil.rmtree(options.to)
    options.to.mkdir(parents=True)
    if (options.source / SCRIPTS).exists():
        shutil.copytree(options.source / SCRIPTS, options.to / SCRIPTS)
    copies = [Path(shutil.copy(path, options.to)) for path in verdicts]
    # Written again and not copied, as they say where the scripts are.
    pages.write(options.to, [verdict_file.read(path) for path in copies])
    print(f"{len(verdicts)} verdicts and their pages are in {options.to}")
    return ExitCode.PASSED


def _published(folder: Path) -> set[str]:
    """Names in ``folder`` that this command may have written."""
    return {*_PAGES, SCRIPTS, *(path.name for path in folder.glob("*.json"))}


def _finished(folder: Path) -> list[Path]:
    """The verdict files in ``folder``.

    Raises:
        VerdictFileError: There are none, one is not finished or repeats failures by absolute
            paths, or a page is missing or says that a target has not been judged.
    """
    verdicts = sorted(folder.glob("*.json"), key=lambda path: natural(path.stem))
    if not verdicts:
        raise VerdictFileError(f"{folder} holds no verdicts: run `tox run -e matrix` first")
    if missing := [name for name in _PAGES if not (folder / name).is_file()]:
        raise VerdictFileError(f"{folder} lacks {', '.join(missing)}: end it with --resume")
    for path in verdicts:
        run = verdict_file.read(path)
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
    return verdicts

"""``python -m gate.matrix.publish``: copy a finished matrix to where it is published."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from gate.command import ROOT
from gate.report import model, pages
from gate.report.model import SCRIPTS, VerdictFileError, natural

_PAGES = ("index.html", "summary.md")


def main(arguments: list[str] | None = None) -> int:
    """Copy verdicts, pages and scripts.

    Returns:
        0, or 2 where the run is not finished or other files are where it would go.
    """
    parser = argparse.ArgumentParser(prog="python -m gate.matrix.publish", description=__doc__)
    parser.add_argument("--from", dest="source", type=Path, default=Path("reports/matrix"))
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "matrix")
    options = parser.parse_args(arguments)
    try:
        verdicts = _finished(options.source)
    except VerdictFileError as error:
        print(error, file=sys.stderr)
        return 2
    if options.to.exists():
        if foreign := sorted({path.name for path in options.to.iterdir()} - _published(options.to)):
            print(
                f"{options.to} would be replaced, but holds {', '.join(foreign[:3])}, which no "
                f"matrix has: name a folder that is new or holds a published matrix",
                file=sys.stderr,
            )
            return 2
        shutil.rmtree(options.to)
    options.to.mkdir(parents=True)
    if (options.source / SCRIPTS).exists():
        shutil.copytree(options.source / SCRIPTS, options.to / SCRIPTS)
    copies = [Path(shutil.copy(path, options.to)) for path in verdicts]
    # Written again and not copied, as they say where the scripts are.
    pages.write(options.to, [model.read(path) for path in copies])
    print(f"{len(verdicts)} verdicts and their pages are in {options.to}")
    return 0


def _published(folder: Path) -> set[str]:
    """Names in ``folder`` that this command may have written."""
    return {*_PAGES, SCRIPTS, *(path.name for path in folder.glob("*.json"))}


def _finished(folder: Path) -> list[Path]:
    """The verdict files in ``folder``.

    Raises:
        VerdictFileError: There are none, one is incomplete or repeats failures by absolute
            paths, or a page is missing or says that a target has not been judged.
    """
    verdicts = sorted(folder.glob("*.json"), key=lambda path: natural(path.stem))
    if not verdicts:
        raise VerdictFileError(f"{folder} holds no verdicts: run `tox run -e matrix` first")
    if missing := [name for name in _PAGES if not (folder / name).is_file()]:
        raise VerdictFileError(f"{folder} lacks {', '.join(missing)}: end it with --resume")
    for path in verdicts:
        run = model.read(path)
        # That a release cannot be judged is a result; that a run was cut short is none.
        if not run.complete and not run.error:
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


if __name__ == "__main__":
    sys.exit(main())

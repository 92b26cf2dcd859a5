"""Where the scripts of a test lie."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from fixtures.subjects.subject import Subject
from gate.paste import ROOT, run_with, seen_from
from gate.scripts.calls import Call
from gate.scripts.families import NoScriptError
from gate.scripts.script import render


def _stem(test: str) -> str:
    """``properties/test_x.py::test_y`` becomes ``test_x-test_y``."""
    path, _, name = test.partition("::")
    return re.sub(r"[^A-Za-z0-9_]+", "-", f"{Path(path).stem}-{name}").strip("-")


def scripts_in(folder: Path, test: str) -> list[Path]:
    """The scripts that :func:`write` wrote for a test, in order."""
    stem = _stem(test)
    paths = [folder / f"{stem}.py", *sorted(folder.glob(f"{stem}-[0-9].py"))]
    return [path for path in paths if path.exists()]


def write(folder: Path, subject: Subject, calls: Sequence[Call], test: str) -> list[str]:
    """Write a script for each call of an example, in place of the test's former ones.

    Args:
        folder: Made where it is missing.
        subject: Whose calls they are.
        calls: Of one example.
        test: Node id of its property.

    Returns:
        A line for each script, or on why there is none.
    """
    for old in scripts_in(folder, test):
        old.unlink()
    texts, lines = dict[str, None](), dict[str, None]()
    for call in calls:
        try:
            texts[render(subject, call, test)] = None
        except NoScriptError as error:
            lines[f"no script: {error}; the line to repeat it shows it"] = None
    for number, text in enumerate(texts, 1):
        path = folder / (_stem(test) + (f"-{number}" if number > 1 else "") + ".py")
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        lines[f"{run_with()} {shlex.quote(seen_from(ROOT, str(path)))}"] = None
    return list(lines)

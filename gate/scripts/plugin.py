"""pytest's option ``--write-scripts``: a script for each property that fails."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from fixtures.subjects.subject import Subject
from gate.runner import EXAMPLES
from gate.scripts.calls import recorded
from gate.scripts.files import write
from properties.contract import MARK


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that ask for scripts."""
    group = parser.getgroup("gate", "the subject and its verdict")
    group.addoption(
        "--write-scripts",
        type=Path,
        metavar="DIR",
        help="write a script that needs torch and vLLM alone for each property that fails",
    )
    group.addoption(
        "--write-scripts-of",
        choices=("failures", "all"),
        default="failures",
        help="all: also for the last example of each property that passes (default: failures)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Write the scripts of the example that a property ran last."""
    folder: Path | None = item.config.getoption("write_scripts")
    if folder is None or item.get_closest_marker(MARK) is None:
        return (yield)
    assert isinstance(item, pytest.Function)
    wanted = item.config.getoption("write_scripts_of") == "all"
    try:
        with recorded(item.stash[EXAMPLES]) as calls:
            return (yield)
    except pytest.skip.Exception:
        wanted = False
        raise
    except Exception:
        wanted = True
        raise
    finally:
        if wanted:
            subject = item.funcargs["subject"]
            assert isinstance(subject, Subject)
            lines = write(folder, subject, calls, item.nodeid)
            item.add_report_section("call", "script", "\n".join(lines))

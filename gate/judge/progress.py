"""How far the judgement of one target is, in one line of a terminal that is rewritten.

Loaded with ``-p gate.judge.progress``; says nothing where the output is no terminal.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from gate.results import Verdict
from gate.runner import RESULT


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Show the progress in the process that talks to the user."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.isatty and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "gate-progress")


def in_words(done: int, total: int, last: str, seconds: float) -> str:
    """``12/60 properties, last GRP-3, about 4 min left, longer for each failure``.

    Finding the smallest example of a failure can take minutes, and nobody knows how many fail.

    Args:
        done: Properties that ran.
        total: All of them.
        last: Clauses of the one that ran last.
        seconds: Since the first one began.
    """
    line = f"{done}/{total} properties, last {last}"
    if done == total:
        return line
    left = seconds / done * (total - done)
    about = f"{round(left / 60)} min" if left >= 90 else f"{max(1, round(left))} s"
    return f"{line}, about {about} left, longer for each failure"


class Progress:
    """Hooks that rewrite the line, in place of pytest's characters for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._writer = config.get_terminal_writer()
        self._tests: set[str] = set()
        self._clauses: dict[str, str] = {}
        self._done: set[str] = set()
        self._began = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests, where this process runs them itself."""
        self._tests.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Count the tests that workers share."""
        self._tests.update(ids)
        self._began = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Keep what is counted, and print no character for it."""
        status = yield
        return status and (status[0], "", status[2])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Rewrite the line once a test is through, and leave a failure's above it."""
        properties: dict[str, Any] = dict(report.user_properties)
        if RESULT in properties:
            result = properties[RESULT]
            self._clauses[report.nodeid] = ", ".join(result["clauses"])
            if result["verdict"] == Verdict.FAIL:
                self._write_over(f"{result['verdict']}: {report.nodeid}: {result['reason']}")
                self._writer.write("\n")
        if report.when != "teardown":
            return
        self._done.add(report.nodeid)
        last = self._clauses.get(report.nodeid, report.nodeid)
        seconds = time.monotonic() - self._began
        line = in_words(len(self._done), len(self._tests | self._done), last, seconds)
        self._write_over(line)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Leave the line to what is printed next."""
        self._write_over("")
        self._writer.write("\r", flush=True)

    def _write_over(self, line: str) -> None:
        width = self._writer.fullwidth - 1
        self._writer.write(f"\r{line[:width].ljust(width)}", flush=True)

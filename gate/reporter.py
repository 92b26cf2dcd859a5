"""From the reports of tests to the verdict: header, table, file and exit code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gate import table
from gate.exit_codes import ExitCode
from gate.judgement import Judgement
from gate.results import TestResult, Verdict
from gate.runner import PASSES_NOW, RESULT, Runner


class WorkerReporter:
    """Hooks of an xdist worker: hand the plan to the process that reports."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        workeroutput: dict[str, object] = session.config.workeroutput  # type: ignore[attr-defined]
        workeroutput[RESULT] = {
            "plan": {test: list(ids) for test, ids in self._runner.plan.items()},
            "selected": sorted(self._runner.selected),
        }


class Reporter:
    """Hooks of the process that the user started: gather, print, write, exit."""

    def __init__(self, judgement: Judgement, runner: Runner, path: Path | None) -> None:
        self._judgement = judgement
        self._runner = runner
        self._path = path
        self._failures = 0
        self._lost: dict[str, str] = {}

    def pytest_sessionstart(self) -> None:
        """Leave a file even of a run that is killed before its first result."""
        self._write()

    def pytest_report_header(self) -> list[str]:
        judgement = self._judgement
        settings_ = ", ".join(f"{name} {value}" for name, value in judgement.settings.items())
        return [
            f"subject: {judgement.subject} {judgement.version}, device {judgement.device}, "
            f"world {judgement.world}, profile {judgement.profile}",
            f"settings: {settings_}",
        ]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._judgement.plan.update(self._runner.plan)
        self._judgement.selected.update(self._runner.selected)
        self._write()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the plan of an xdist worker; a crashed one leaves none."""
        output = getattr(node, "workeroutput", {}).get(RESULT)
        if output:
            self._judgement.plan.update({test: tuple(ids) for test, ids in output["plan"].items()})
            self._judgement.selected.update(output["selected"])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = _result_of(report)
        if result is not None:
            # What a test said stands, unless its tear-down fails after it.
            before = self._judgement.results.get(result.test)
            failed = before is not None and before.verdict is Verdict.FAIL
            if report.when != "teardown" or (report.failed and not failed):
                self._judgement.results[result.test] = result
                self._write()
            self._failures += result.verdict is Verdict.FAIL
        elif report.failed:
            self._lost[report.nodeid] = report.longreprtext.strip().rpartition("\n")[2]

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
        """Count known failures and what is not applicable under their own names."""
        result = _result_of(report)
        verdict = result.verdict if result else None
        if verdict is Verdict.KNOWN:
            return "known", "k", ("KNOWN", {"yellow": True})
        if verdict is Verdict.NOT_APPLICABLE:
            return "not applicable", "n", ("NOT APPLICABLE", {"yellow": True})
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        judgement = self._judgement
        failed = self._failures
        for test, message in self._lost.items():
            if test in judgement.plan:
                judgement.results[test] = TestResult(
                    test, judgement.plan[test], Verdict.UNKNOWN, 0, reason=message
                )
            else:
                failed += 1
        finished = exitstatus in (ExitCode.PASSED, ExitCode.FAILED)
        judgement.finished = finished and judgement.selected <= judgement.results.keys()
        if finished and (failed or judgement.complaints()):
            session.exitstatus = ExitCode.FAILED
        elif finished and exitstatus == ExitCode.FAILED:
            session.exitstatus = ExitCode.NOT_JUDGED
        judgement.exit_code = int(session.exitstatus)
        self._write()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        judgement = self._judgement
        if not judgement.plan and not judgement.results:
            return
        writer = terminalreporter.config.get_terminal_writer()
        terminalreporter.section(f"verdict on {judgement.subject} {judgement.version}")
        terminalreporter.write_line(table.render(judgement, writer.fullwidth, writer.hasmarkup))
        for result in judgement.results.values():
            if result.reason == PASSES_NOW:
                terminalreporter.write_line(f"{result.test}: {PASSES_NOW}", green=True)
        for lead in judgement.leads():
            terminalreporter.write_line(str(lead), red=True)
        for complaint in judgement.complaints():
            terminalreporter.write_line(complaint, red=True)
        terminalreporter.write_line(table.summary(judgement))

    def _write(self) -> None:
        if self._path is not None:
            self._judgement.write(self._path)


def _result_of(report: pytest.TestReport | pytest.CollectReport) -> TestResult | None:
    """What the runner attached to the report of a property."""
    properties = dict(getattr(report, "user_properties", ()))
    return TestResult.from_json(properties[RESULT]) if RESULT in properties else None

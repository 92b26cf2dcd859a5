"""A pytest session that collects the properties once and runs them on one fault after another."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import json
import math
import multiprocessing
import os
import resource
import selectors
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import pytest
import torch
from _pytest.runner import runtestprotocol
from hypothesis import Phase

from fixtures.subjects.subject import Subject
from fixtures.worlds.lifeline import die_with
from fixtures.worlds.pool import Worlds
from gate import profiles
from gate.faults.fault import Seed
from gate.faults.outcome import Fate, Outcome, judge
from gate.faults.seeding import edited_functions, seed_imports, seed_started_processes
from gate.faults.source import FaultError
from gate.faults.worlds import SeededWorlds
from gate.plugin import SUBJECT
from gate.results import TestResult, Verdict
from gate.runner import RESULT
from properties.contract import MARK, clauses_of

PROFILE = "faults"
# The slowest property takes less than a tenth of either. A fork is held to processor time, which
# does not depend on what else the machine does, and to the clock where it waits.
CPU_SECONDS = 60
LIMIT_SECONDS = 600.0


def register_profile() -> None:
    """The examples of profile ``ci``, the first failing one ending the property unshrunk."""
    profiles.register()
    hypothesis.settings.register_profile(
        PROFILE,
        hypothesis.settings.get_profile("ci"),
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
        print_blob=False,
    )


@dataclass
class Session:
    """Runs the baseline, then every fault; a plugin of one ``pytest.main``.

    Attributes:
        seeds: The faults.
        jobs: Faults that run at the same time.
        on_progress: Called with what is over: a fault's outcome, or None for a property of
            the baseline.
        on_start: Called with the number of properties of the baseline, and of faults.
        red: Properties that fail without any fault, with their reasons.
        outcomes: Of the faults, in their order.
        subject: Under judgement, known once the session has begun.
        not_collected: Why properties cannot be imported.
    """

    seeds: Sequence[Seed]
    jobs: int
    on_start: Callable[[int, int], None]
    on_progress: Callable[[Outcome | None], None]
    red: dict[str, str] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    subject: Subject | None = None
    not_collected: list[str] = field(default_factory=list)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a module of properties cannot be imported."""
        if report.failed:
            self.not_collected.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the faults in place of the tests."""
        if session.testsfailed:
            raise session.Interrupted("the properties cannot be collected")
        subject, worlds = session.config.stash[SUBJECT]
        self.subject = subject
        properties = [item for item in session.items if item.get_closest_marker(MARK)]
        needed = [
            item
            for item in properties
            if any(seed.place_of(clauses_of(item)) is not None for seed in self.seeds)
        ]
        self.on_start(len(needed), len(self.seeds))
        simulated = session.config.getoption("world") == "simulated"
        run = (
            _in_forks(subject, self.jobs)
            if simulated
            else _on_fresh_ranks(subject, worlds, self.jobs)
        )
        for report in run([_Trial(None, [item]) for item in needed]):
            for result in report.results:
                if result.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
                    self.red[result.test] = result.reason
            if report.error:
                self.red[report.trial.items[0].nodeid] = report.error
            self.on_progress(None)
        green = [item for item in properties if item.nodeid not in self.red]
        trials = [_Trial(seed, _in_order(seed, green)) for seed in self.seeds]
        outcomes = {}
        for report in run(trials):
            outcome = self._judge(report)
            outcomes[outcome.id] = outcome
            self.on_progress(outcome)
        self.outcomes = [outcomes[seed.id] for seed in self.seeds]
        return True

    def _judge(self, report: _Report) -> Outcome:
        seed = report.trial.seed
        assert seed is not None
        if report.fate is None:
            return judge(seed, report.results, report.seconds)
        return Outcome(
            seed.id, seed.clauses, seed.sentence, report.fate, reason=report.error,
            seconds=report.seconds,
        )  # fmt: skip


def _in_order(seed: Seed, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The properties that must kill ``seed``, in the order of its clauses."""
    places = [(seed.place_of(clauses_of(item)), item) for item in items]
    return [
        item
        for place, item in sorted(places, key=lambda pair: -1 if pair[0] is None else pair[0])
        if place is not None
    ]


@dataclass(frozen=True)
class _Trial:
    """Properties to run on a fault, or on the subject as it is."""

    seed: Seed | None
    items: list[pytest.Item]


@dataclass
class _Report:
    """What a trial came to: results, or why there are none."""

    trial: _Trial
    results: list[TestResult]
    fate: Fate | None = None
    error: str = ""
    seconds: float = 0.0


def _run_items(
    items: Sequence[pytest.Item], before_each: Callable[[], None] = lambda: None
) -> list[TestResult]:
    """Run properties until one of them fails."""
    results: list[TestResult] = []
    for item, following in itertools.zip_longest(items, items[1:]):
        before_each()
        reports = runtestprotocol(item, log=False, nextitem=following)
        properties = [value for report in reports for value in report.user_properties]
        results += [TestResult.from_json(value) for name, value in properties if name == RESULT]  # type: ignore[arg-type]
        if results and results[-1].verdict is Verdict.FAIL:
            item.session._setupstate.teardown_exact(None)
            break
    return results


def _on_fresh_ranks(
    subject: Subject, worlds: Worlds, jobs: int
) -> Callable[[Sequence[_Trial]], Iterator[_Report]]:
    """Shares trials out over ``jobs`` processes, each of which starts fresh ranks for each."""

    def run(trials: Sequence[_Trial]) -> Iterator[_Report]:
        pool = ProcessPoolExecutor(
            jobs,
            mp_context=multiprocessing.get_context("fork"),
            initializer=_become_worker,
            initargs=(os.getpid(), subject, worlds, trials),
        )
        try:
            waiting = {pool.submit(_run_numbered, at): trial for at, trial in enumerate(trials)}
            for done in as_completed(waiting):
                try:
                    yield _Report(waiting[done], **done.result())
                except BrokenProcessPool as error:
                    yield _Report(waiting[done], [], Fate.HUNG, str(error))
        finally:
            pool.shutdown(cancel_futures=True)

    return run


# What a worker was forked with: tests cannot be sent to it.
_work: tuple[Subject, Worlds, Sequence[_Trial]]


def _become_worker(parent: int, *work: Any) -> None:
    global _work
    die_with(parent)
    _work = work


def _run_numbered(number: int) -> dict[str, Any]:
    """Run a trial; its report without the trial."""
    subject, worlds, trials = _work
    start = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        report = _run_on_fresh_ranks(trials[number], subject, worlds)
    return {
        "results": report.results,
        "fate": report.fate,
        "error": report.error,
        "seconds": time.monotonic() - start,
    }


def _run_on_fresh_ranks(trial: _Trial, subject: Subject, worlds: Worlds) -> _Report:
    if trial.seed is None:
        return _Report(trial, _run_items(trial.items))
    try:
        functions = edited_functions(trial.seed.texts)
    except FaultError as error:
        return _Report(trial, [], Fate.BROKEN, str(error))
    worlds.close()
    subject.worlds = SeededWorlds(worlds, subject.adapter[0], functions)
    try:
        return _Report(trial, _run_items(trial.items))
    finally:
        subject.worlds = worlds
        worlds.close()


def _in_forks(subject: Subject, jobs: int) -> Callable[[Sequence[_Trial]], Iterator[_Report]]:
    """Runs each trial in a process of its own, forked before the subject is imported."""
    # Threads of an operator's pool do not survive a fork.
    torch.set_num_threads(1)

    def run(trials: Sequence[_Trial]) -> Iterator[_Report]:
        waiting = deque(trials)
        running: dict[int, _Child] = {}
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        child = _Child(waiting.popleft(), subject)
                        running[child.pid] = child
                        selector.register(child.pipe, selectors.EVENT_READ, child)
                    for key, _ in selector.select(1.0):
                        child = key.data
                        if not child.read():
                            selector.unregister(child.pipe)
                            del running[child.pid]
                            yield child.report()
                    for child in running.values():
                        child.kill_if_late()
            finally:
                for child in running.values():
                    child.kill()
                    child.report()

    return run


class _Child:
    """A forked process that runs one trial and writes its results to a pipe."""

    def __init__(self, trial: _Trial, subject: Subject) -> None:
        self._trial = trial
        self._start = time.monotonic()
        self._data = b""
        self._late = False
        self.pipe, theirs = os.pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.pipe)
                die_with(parent)
                with os.fdopen(theirs, "wb") as file:
                    file.write(json.dumps(_run_forked(trial, subject)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(theirs)

    def read(self) -> bool:
        """Take what has come; whether more may follow."""
        piece = os.read(self.pipe, 1 << 16)
        self._data += piece
        return bool(piece)

    def kill_if_late(self) -> None:
        if time.monotonic() - self._start > LIMIT_SECONDS:
            self._late = True
            self.kill()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def report(self) -> _Report:
        """Reap the process; what it came to."""
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        report = _Report(self._trial, [], seconds=time.monotonic() - self._start)
        if self._late:
            report.fate, report.error = Fate.HUNG, f"was not over after {LIMIT_SECONDS:g} s"
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            report.fate = Fate.HUNG
            report.error = f"a property was not over after {CPU_SECONDS} s of processor time"
        elif status != 0:
            code = os.waitstatus_to_exitcode(status)
            report.fate, report.error = Fate.HUNG, f"its process ended with status {code}"
        else:
            answer = json.loads(self._data)
            report.results = [TestResult.from_json(data) for data in answer["results"]]
            if answer["error"]:
                report.fate, report.error = Fate.BROKEN, answer["error"]
        return report


def _limit_processor_time() -> None:
    """Have the kernel end this process when it has computed for too long from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _run_forked(trial: _Trial, subject: Subject) -> dict[str, Any]:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        if trial.seed is not None:
            seed_imports(trial.seed.texts)
            seed_started_processes(trial.seed.texts)
        importlib.import_module(subject.adapter[0])
    except Exception:
        return {"results": [], "error": traceback.format_exc()}
    results = _run_items(trial.items, _limit_processor_time)
    return {"results": [result.to_json() for result in results], "error": ""}

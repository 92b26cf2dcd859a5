"""Trials in processes of their own, forked before the subject is imported."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import resource
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from fixtures.ranks.lifetime import die_with
from fixtures.subjects.subject import Subject
from gate.faults.outcome import Fate
from gate.faults.seeding import seed_imports, seed_started_processes
from gate.faults.trials import Report, Trial, run_items

# The slowest property takes less than a tenth of either. A fork is held to processor time, which
# does not depend on what else the machine does, and to the clock where it waits.
CPU_SECONDS = 60
LIMIT_SECONDS = 600.0


def in_forks(
    subject: Subject, jobs: int
) -> Callable[[Sequence[Trial]], Iterator[tuple[Trial, Report]]]:
    """Runs each trial in a process of its own, ``jobs`` of them at the same time."""
    # Threads of an operator's pool do not survive a fork.
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")

    def start(trial: Trial) -> _Fork:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(theirs, os.getpid(), trial, subject))
        process.start()
        theirs.close()
        return _Fork(trial, process, ours)

    def run(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Report]]:
        waiting = deque(trials)
        running: dict[Connection, _Fork] = {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    fork = start(waiting.popleft())
                    running[fork.answers] = fork
                for answers in wait(list(running), timeout=1.0):
                    assert isinstance(answers, Connection)
                    fork = running.pop(answers)
                    yield fork.trial, fork.report()
                for fork in running.values():
                    if fork.seconds > LIMIT_SECONDS:
                        fork.process.kill()
        finally:
            for fork in running.values():
                fork.process.kill()
                fork.process.join()

    return run


@dataclass
class _Fork:
    trial: Trial
    process: BaseProcess
    answers: Connection
    _start: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def report(self) -> Report:
        """What the trial came to; its process has answered or ended."""
        seconds = self.seconds
        try:
            report: Report = self.answers.recv()
        except EOFError:
            self.process.join()
            report = Report(fate=Fate.HUNG, error=self._why_it_ended())
        self.process.join()
        self.answers.close()
        report.seconds = seconds
        return report

    def _why_it_ended(self) -> str:
        if self.seconds > LIMIT_SECONDS:
            return f"was not over after {LIMIT_SECONDS:g} s"
        if self.process.exitcode == -signal.SIGXCPU:
            return f"a property was not over after {CPU_SECONDS} s of processor time"
        return f"its process ended with status {self.process.exitcode}"


def _answer(answers: Connection, parent: int, trial: Trial, subject: Subject) -> None:
    die_with(parent)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    answers.send(_run(trial, subject))


def _run(trial: Trial, subject: Subject) -> Report:
    try:
        if trial.seed is not None:
            seed_imports(trial.seed.texts)
            seed_started_processes(trial.seed.texts)
        importlib.import_module(subject.adapter[0])
    except Exception:
        return Report(fate=Fate.BROKEN, error=traceback.format_exc())
    return Report(run_items(trial.items, _limit_processor_time))


def _limit_processor_time() -> None:
    """Have the kernel end this process when it has computed for too long from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))

"""Trials in processes that stay, each fault on fresh ranks: importing the subject takes seconds."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from fixtures.ranks.lifetime import die_with
from fixtures.ranks.pool import Worlds
from fixtures.subjects.subject import Subject
from gate.faults.outcome import Fate
from gate.faults.seeding import edited_functions
from gate.faults.source import FaultError
from gate.faults.trials import Report, Trial, run_items
from gate.faults.worlds import SeededWorlds


def on_ranks(
    subject: Subject, worlds: Worlds, jobs: int
) -> Callable[[Sequence[Trial]], Iterator[tuple[Trial, Report]]]:
    """Shares trials out over ``jobs`` processes, each of which starts fresh ranks for each."""

    def run(trials: Sequence[Trial]) -> Iterator[tuple[Trial, Report]]:
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
                    yield waiting[done], done.result()
                except BrokenProcessPool as error:
                    yield waiting[done], Report(fate=Fate.HUNG, error=str(error))
        finally:
            pool.shutdown(cancel_futures=True)

    return run


# What a worker was forked with: tests cannot be sent to it.
_work: tuple[Subject, Worlds, Sequence[Trial]]


def _become_worker(parent: int, *work: Any) -> None:
    global _work
    die_with(parent)
    _work = work


def _run_numbered(number: int) -> Report:
    subject, worlds, trials = _work
    start = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        report = _run(trials[number], subject, worlds)
    report.seconds = time.monotonic() - start
    return report


def _run(trial: Trial, subject: Subject, worlds: Worlds) -> Report:
    if trial.seed is None:
        return Report(run_items(trial.items))
    try:
        functions = edited_functions(trial.seed.texts)
    except FaultError as error:
        return Report(fate=Fate.BROKEN, error=str(error))
    worlds.close()
    subject.worlds = SeededWorlds(worlds, subject.adapter[0], functions)
    try:
        return Report(run_items(trial.items))
    finally:
        subject.worlds = worlds
        worlds.close()

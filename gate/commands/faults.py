"""Seed faults, and print what share of them the properties kill."""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gate.arguments import positive
from gate.exit_codes import ExitCode
from gate.faults import recorded
from gate.faults import session as faults_session
from gate.faults.fault import Seed, catalog, seed_of
from gate.faults.mutants import mutants
from gate.faults.outcome import Fate, Outcome
from gate.faults.report import Report
from gate.faults.session import Session
from gate.faults.source import FaultError
from gate.paste import ROOT

_WORLDS = {"impl": "simulated", "vllm": "forked", "vllm+plugin": "forked"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which faults are put where, and what is done with the shares."""
    parser.add_argument("--subject", choices=sorted(_WORLDS), default="impl")
    parser.add_argument(
        "--mutants", action="store_true", help="generic mutants of impl in place of named faults"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="faults whose id or clause matches, such as LIN-* or *merge*; may be repeated",
    )
    parser.add_argument(
        "-k",
        dest="keyword",
        default="",
        metavar="EXPRESSION",
        help="put the faults to these properties alone, chosen as by pytest's -k",
    )
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail if a share is below the one in {recorded.PATH.name}",
    )
    parser.add_argument(
        "--record", action="store_true", help=f"write the shares to {recorded.PATH.name}"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="write the report as JSON and Markdown"
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        default=len(os.sched_getaffinity(0)),
        help="faults that run at the same time (default: one for each core)",
    )


def run(options: argparse.Namespace) -> ExitCode:
    """Seed the faults and print what became of them.

    Returns:
        Passed if every property is green without a fault and, with ``--check``, no share is
        smaller than the recorded one; failed otherwise; not judged if a fault cannot be seeded
        or the properties cannot be run.

    Raises:
        pytest.UsageError: ``--check`` or ``--record`` with a part of the faults alone.
    """
    if (options.only or options.keyword) and (options.check or options.record):
        raise pytest.UsageError(
            "--check and --record are about all faults: leave --only and -k out"
        )
    console = Console()
    kind = "mutants" if options.mutants else "faults"
    try:
        seeds = _seeds(options.subject, options.mutants, options.only)
    except FaultError as error:
        console.print(str(error), style="bold red", markup=False)
        return ExitCode.NOT_JUDGED
    if options.list:
        for seed in seeds:
            console.print(f"{seed.id}  [{', '.join(seed.clauses)}]  {seed.sentence}", markup=False)
        return ExitCode.PASSED
    session = _run(options.subject, seeds, options.jobs, options.keyword, console)
    if session.subject is None:
        return ExitCode.NOT_JUDGED
    if options.keyword and all(outcome.fate is Fate.NOT_RUN for outcome in session.outcomes):
        sentence = f"-k {options.keyword}: no property of the clauses of these faults matches"
        console.print(sentence, style="bold red", markup=False)
        return ExitCode.NOT_JUDGED
    report = Report(
        subject=session.subject.name,
        version=session.subject.version,
        kind=kind,
        outcomes=session.outcomes,
        red=session.red,
        complaints=_complaints(seeds, session.outcomes),
    )
    for table in report.tables():
        console.print(table)
    problems = [f"red without a fault: {test}: {why}" for test, why in session.red.items()]
    problems += report.complaints
    if options.check:
        try:
            problems += report.fallen_below(recorded.read(options.subject, kind))
        except KeyError:
            problems.append(f"no share of {kind} on {options.subject} is recorded: add --record")
    if options.record:
        recorded.write(options.subject, kind, report.shares_to_record())
    for problem in problems:
        console.print(problem, style="bold red", markup=False)
    console.print(report.headline(), markup=False)
    if options.report:
        report.write(options.report)
    return ExitCode.FAILED if problems else ExitCode.PASSED


def _seeds(subject: str, generic: bool, only: Sequence[str]) -> list[Seed]:
    if generic:
        if subject != "impl":
            raise FaultError(f"generic mutants are made of impl alone, not of {subject}")
        seeds = [mutant for mutant in mutants() if _matches(only, mutant.id, *mutant.clauses)]
    else:
        named = [fault for fault in catalog(subject) if _matches(only, fault.id, fault.clause)]
        seeds, stale = [], []
        for fault in named:
            try:
                seeds.append(seed_of(fault))
            except FaultError as error:
                stale.append(str(error))
        if stale:
            raise FaultError("\n".join(stale))
    if not seeds:
        raise FaultError(f"no fault of {subject} matches {', '.join(only) or 'anything'}")
    return seeds


def _matches(patterns: Sequence[str], *names: str) -> bool:
    return not patterns or any(
        fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names
    )


def _run(subject: str, seeds: Sequence[Seed], jobs: int, keyword: str, console: Console) -> Session:
    faults_session.register_profile()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        baseline = progress.add_task("without a fault", total=None)
        faults = progress.add_task("with a fault", total=None)

        def start(properties: int, seeded: int) -> None:
            progress.update(baseline, total=properties)
            progress.update(faults, total=seeded)

        def advance(outcome: Outcome | None) -> None:
            progress.advance(baseline if outcome is None else faults)
            # A log shows no moving bar, so that it gets every line.
            if outcome is not None and (outcome.fate is not Fate.KILLED or not console.is_terminal):
                line = f"{outcome.fate}: {outcome.id} ({outcome.seconds:.1f} s)"
                if outcome.by:
                    property_, message = (
                        outcome.by.rpartition("::")[2],
                        outcome.reason.partition("\n")[0],
                    )
                    line += f" by {property_}: {message}"
                progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

        session = Session(seeds, jobs, start, advance)
        # The addopts of the project ask for reports of a terminal that is not there.
        status = pytest.main(
            [
                str(ROOT / "properties"), f"--rootdir={ROOT}", "--subject", subject,
                "--world", _WORLDS[subject], "--hypothesis-profile", faults_session.PROFILE,
                "-p", "no:terminal", "-p", "no:xdist", "-p", "no:cacheprovider",
                "-k", keyword, "--capture=no", "-o", "addopts=--import-mode=importlib",
                # Hypothesis is imported before pytest could rewrite its assertions.
                "-W", "ignore::pytest.PytestAssertRewriteWarning",
            ],
            plugins=[session],
        )  # fmt: skip
    if session.subject is None:
        for problem in session.not_collected:
            console.print(problem, style="bold red", markup=False)
        console.print(f"the properties could not be run: pytest ended with {status!r}")
    return session


def _complaints(seeds: Sequence[Seed], outcomes: Sequence[Outcome]) -> list[str]:
    argued = {seed.id for seed in seeds if seed.equivalent}
    return [
        f"{outcome.id} is argued to be equivalent, but was {outcome.fate}: correct the argument"
        for outcome in outcomes
        if outcome.id in argued and outcome.fate is not Fate.EQUIVALENT
    ]

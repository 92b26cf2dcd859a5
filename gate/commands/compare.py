"""Judge a base and a patch, and tell and fail on nothing but what the patch changes."""

from __future__ import annotations

import argparse

import pytest

from gate.commands import _runs
from gate.exit_codes import ExitCode
from gate.judge.runs import Plan
from gate.report import verdict_file
from gate.report.compare import changes
from gate.results import Verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two targets, and how they are judged."""
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help=f"the base and the patch, or with --with-plugin the base alone: {_runs.TARGET}",
    )
    _runs.add_arguments(parser, out="reports")


def run(options: argparse.Namespace) -> ExitCode:
    """Judge both and print the changes.

    Raises:
        pytest.UsageError: A target cannot be judged, or there are not two.
    """
    expected = 1 if options.with_plugin else 2
    if len(options.targets) != expected:
        raise pytest.UsageError(
            f"a base and a patch are compared, but {len(options.targets)} targets are named; "
            f"with --with-plugin the base alone is"
        )
    plan, code = _runs.judge_and_report(options, options.targets)
    if code is not ExitCode.INTERRUPTED:
        code = _compare(plan)
    return _runs.end(plan, code)


def _compare(plan: Plan) -> ExitCode:
    """Print what the patch changes; its exit code is that of the changes."""
    base, patch = (verdict_file.read(plan.verdict_of(target)) for target in plan.targets)
    for run in (base, patch):
        if run.error:
            print(f"{run.title} was not judged: {run.error}", flush=True)
            return ExitCode.NOT_JUDGED
    found = changes(base, patch)
    for change in found:
        print(change)
    clauses = {id_ for change in found for id_ in change.patch.clauses}
    print(
        f"{patch.title} against {base.title}: {len(found)} properties changed, "
        f"of {len(clauses)} clauses",
        flush=True,
    )
    if ids := [clause.id for clause in patch.clauses if clause.verdict is Verdict.STAND_IN]:
        print(f"{Verdict.STAND_IN}, no word on {patch.title}: {', '.join(ids)}", flush=True)
    if not base.finished:
        print(f"{base.title} has no finished verdict to compare with", flush=True)
        return ExitCode.NOT_JUDGED
    if any(change.is_new_failure for change in found):
        return ExitCode.FAILED
    undecided = not patch.finished or any(change.is_lost for change in found)
    return ExitCode.NOT_JUDGED if undecided else ExitCode.PASSED

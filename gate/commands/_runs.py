"""Arguments and course of the commands that judge several targets."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gate import profiles
from gate.exit_codes import ExitCode
from gate.judge.runs import Plan, judge_all
from gate.judge.targets import Target, TargetError
from gate.report import pages, verdict_file

TARGET = "impl, vllm (as installed), vllm==X, a vLLM wheel, or a vLLM checkout[@X]"


def add_arguments(parser: argparse.ArgumentParser, out: str) -> None:
    """Add what all of these commands take.

    Args:
        parser: Of the command.
        out: Default folder of the results.
    """
    parser.add_argument(
        "--profile",
        choices=profiles.NAMES,
        default=profiles.DEFAULT,
        help="Hypothesis profile (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, default=out, help="folder of the results (default: %(default)s)"
    )
    parser.add_argument(
        "--workers", default="auto", help="what pytest -n takes (default: %(default)s)"
    )
    parser.add_argument(
        "--with-plugin",
        action="store_true",
        help="judge each vLLM once more, with the plug-in switched on",
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out what --out has a finished verdict on"
    )


def judge_and_report(options: argparse.Namespace, texts: Sequence[str]) -> tuple[Plan, ExitCode]:
    """Judge the targets that ``texts`` name, and write the pages.

    Returns:
        What was judged, and the gravest outcome.

    Raises:
        pytest.UsageError: A text names nothing that can be judged, or two name the same files.
    """
    try:
        targets = [Target.parse(text) for text in texts]
    except TargetError as error:
        raise pytest.UsageError(str(error)) from error
    if options.with_plugin:
        targets = [
            one
            for target in targets
            for one in (target, *([target.with_plugin()] if target.subject == "vllm" else ()))
        ]
    slugs = [target.slug for target in targets]
    if twice := [slug for slug in slugs if slugs.count(slug) > 1]:
        raise pytest.UsageError(
            f"two targets would write {twice[0]}.json: name each once, and give checkouts folders "
            f"of different names"
        )
    plan = Plan(targets, options.out.resolve(), options.profile, options.workers, options.resume)
    try:
        code = judge_all(plan, say, lambda: _report(plan))
    except KeyboardInterrupt:
        say("interrupted: --resume goes on from here")
        code = ExitCode.INTERRUPTED
    _report(plan)
    return plan, code


def end(plan: Plan, code: ExitCode) -> ExitCode:
    """Say where the pages are, and what the exit code is."""
    say(f"report: {plan.folder / 'index.html'}, exit code {code}")
    return code


def say(line: str) -> None:
    """Print a line on the progress."""
    print(line, file=sys.stderr, flush=True)


def _report(plan: Plan) -> None:
    """Write the pages of what has been judged so far, and name what has not."""
    judged = [target for target in plan.targets if plan.verdict_of(target).exists()]
    pages.write(
        plan.folder,
        [verdict_file.read(plan.verdict_of(target)) for target in judged],
        waiting=[str(target) for target in plan.targets if target not in judged],
    )

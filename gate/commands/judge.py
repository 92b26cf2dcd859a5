"""Judge subjects one after the other, and report on all of them."""

from __future__ import annotations

import argparse

from gate.commands import _runs, compare
from gate.exit_codes import ExitCode
from gate.judge.releases import REFERENCE

_DEFAULT = (f"vllm=={REFERENCE}", "impl")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the targets, and how they are judged."""
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        default=_DEFAULT,
        help=f"{_runs.TARGET} (default: {' '.join(_DEFAULT)})",
    )
    parser.add_argument(
        "--compare", action="store_true", help="do what the command `compare` does with two targets"
    )
    _runs.add_arguments(parser, out="reports")


def run(options: argparse.Namespace) -> ExitCode:
    """Judge the targets.

    Raises:
        pytest.UsageError: A target cannot be judged, or ``--compare`` is not given two.
    """
    if options.compare:
        return compare.run(options)
    return _runs.end(*_runs.judge_and_report(options, options.targets))

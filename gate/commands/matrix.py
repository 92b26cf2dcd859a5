"""Judge impl and every release of vLLM that has a verdict, side by side."""

from __future__ import annotations

import argparse

from gate.commands import _runs
from gate.exit_codes import ExitCode
from gate.judge.releases import RELEASES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how they are judged."""
    parser.epilog = f"The releases: {', '.join(RELEASES)}."
    _runs.add_arguments(parser, out="reports/matrix")


def run(options: argparse.Namespace) -> ExitCode:
    """Judge them all."""
    targets = ["impl", *(f"vllm=={release}" for release in RELEASES)]
    return _runs.end(*_runs.judge_and_report(options, targets))

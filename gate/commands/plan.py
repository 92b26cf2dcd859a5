"""Say what query replication costs and saves a deployment, and whether it pays."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import pytest
from rich.console import Console

from gate import plan
from gate.arguments import positive
from gate.exit_codes import ExitCode
from gate.plan import models
from gate.plan.calibration import calibrate, check
from gate.plan.deployment import Deployment
from gate.plan.errors import PlanError
from gate.plan.machine import Machine
from gate.plan.plot import draw
from gate.plan.prediction import Setting, predict
from gate.plan.rows import read
from gate.plan.terminal import show_calibration, show_plan

MACHINES = Path(plan.__file__).parent / "machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the deployment, the machine, and what to show of the two."""
    known = ", ".join(model.name for model in models.KNOWN.values())
    parser.add_argument("model", nargs="?", help=f"{known}, or a Hugging Face config.json")
    parser.add_argument("--tp", type=positive, help="tensor-parallel ranks")
    parser.add_argument("--dcp", type=positive, help="ranks of a decode-context-parallel group")
    parser.add_argument("--batch", type=positive, default=32, help="tokens of a step (32)")
    parser.add_argument(
        "--dtype", choices=("bf16", "fp8"), default="bf16", help="of the query projection (bf16)"
    )
    parser.add_argument(
        "--query-dtype",
        choices=("bf16", "fp8"),
        default="bf16",
        help="of the query that crosses the link: fp8 with an fp8 KV cache (bf16)",
    )
    parser.add_argument(
        "--context",
        type=positive,
        help="keys of a request: count attention and the merge in; without it, the query alone",
    )
    parser.add_argument(
        "--layers", type=positive, help="layers with MLA, where the model's are not known"
    )
    parser.add_argument(
        "--gather",
        choices=("nccl", "direct"),
        default="nccl",
        help="what a step does without replication (nccl); vLLM takes direct where multicast is on",
    )
    parser.add_argument(
        "--machine",
        default="h200",
        help="name of known constants, a file of them, or measured rows to take them from (h200)",
    )
    parser.add_argument(
        "--link-latency", type=_above_zero, metavar="US", help="of a gather between two ranks"
    )
    parser.add_argument(
        "--link-bandwidth", type=_above_zero, metavar="GB/S", help="that a rank receives"
    )
    parser.add_argument(
        "--step-ms", type=_above_zero, help="your whole decode step, to say what share is saved"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg, .png, ...")
    parser.add_argument(
        "--calibrate",
        type=Path,
        nargs="+",
        metavar="ROWS",
        help="take a machine's constants from measured rows, and check them on those held out",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="write what --calibrate took")


def run(options: argparse.Namespace) -> ExitCode:
    """Plan, or calibrate, as asked.

    Raises:
        pytest.UsageError: The question cannot be answered.
    """
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False, soft_wrap=True)
    try:
        if options.calibrate:
            _calibrate(console, options)
        elif options.model is None or options.tp is None or options.dcp is None:
            raise PlanError("name a model, --tp and --dcp; or rows to --calibrate on")
        else:
            _plan(console, options)
    except PlanError as error:
        raise pytest.UsageError(str(error)) from error
    return ExitCode.PASSED


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0")
    return number


def _calibrate(console: Console, options: argparse.Namespace) -> None:
    measured = read(options.calibrate)
    machine = calibrate(measured)
    show_calibration(console, machine, check(machine, measured.pairs))
    if options.save:
        machine.save(options.save)


def _plan(console: Console, options: argparse.Namespace) -> None:
    model = models.find(options.model)
    deployment = Deployment(model, options.tp, options.dcp, options.dtype, options.query_dtype)
    gather = "gather" if options.gather == "nccl" else "gather-direct"
    machine = _machine(options.machine)
    if options.link_latency or options.link_bandwidth or gather not in machine.rates:
        machine = machine.with_link(gather, options.link_latency, options.link_bandwidth)
    setting = Setting(machine, deployment, options.context, gather)
    predict(setting, options.batch)
    show_plan(console, setting, options.batch, options.layers or model.layers, options.step_ms)
    if options.plot:
        draw(setting, options.plot)


def _machine(name: str) -> Machine:
    known = MACHINES / f"{name.lower()}.json"
    if known.is_file():
        return Machine.load(known)
    path = Path(name)
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in MACHINES.glob("*.json"))) or "none"
        raise PlanError(f"no constants of {name} ({names} are known), and no file of that name")
    if path.suffix == ".jsonl":
        return calibrate(read([path]))
    return Machine.load(path)

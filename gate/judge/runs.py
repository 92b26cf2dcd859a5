"""Run the gate on one target after the other; no verdict stops the next."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures.ranks.lifetime import die_with
from gate import run_settings
from gate.exit_codes import ExitCode
from gate.judge.targets import Target, TargetError
from gate.judgement import SCHEMA, write_json
from gate.paste import ROOT
from gate.report.verdict_file import SCRIPTS

# Unpacked releases, 0.9 GB each; under tox in its work directory.
CACHE = Path(os.environ.get("TOX_WORK_DIR", ROOT / ".tox")) / "vllm"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to judge.

    Attributes:
        targets: In this order.
        folder: Gets ``<target>.json``, ``<target>.xml`` (JUnit) for each target, and
            ``scripts/<target>/`` with a script for each failure that one can show.
        profile: Hypothesis profile.
        workers: What ``pytest -n`` takes.
        resume: Leave out targets whose verdict in ``folder`` is finished, and of the same
            profile and sources.
    """

    targets: Sequence[Target]
    folder: Path
    profile: str
    workers: str
    resume: bool = False

    def verdict_of(self, target: Target) -> Path:
        return self.folder / f"{target.slug}.json"

    def scripts_of(self, target: Target) -> Path:
        return self.folder / SCRIPTS / target.slug


def judge_all(plan: Plan, say: Callable[[str], None], after_each: Callable[[], None]) -> ExitCode:
    """Judge every target.

    Args:
        plan: What to judge, and how.
        say: Takes a line on the progress.
        after_each: Called when the verdict on a target has been written.

    Returns:
        The gravest outcome, a new failure before a target that could not be judged.

    Raises:
        KeyboardInterrupt: The user ended the run; verdicts so far have been written.
    """
    codes, durations = [], list[float]()
    before = {target: _finished(plan, target) if plan.resume else None for target in plan.targets}
    for target, code in before.items():
        if code is None:
            plan.verdict_of(target).unlink(missing_ok=True)
            shutil.rmtree(plan.scripts_of(target), ignore_errors=True)
    for number, target in enumerate(plan.targets):
        label = f"[{number + 1}/{len(plan.targets)}] {target}"
        if (finished := before[target]) is not None:
            say(f"{label}: judged before, {finished.name.lower().replace('_', ' ')}")
            codes.append(finished)
            continue
        say(label + _estimate(durations, len(plan.targets) - number))
        started = time.monotonic()
        codes.append(_judge(plan, target, say))
        durations.append(time.monotonic() - started)
        after_each()
    for code in (ExitCode.FAILED, ExitCode.NOT_JUDGED):
        if code in codes:
            return code
    return ExitCode.PASSED


def _judge(plan: Plan, target: Target, say: Callable[[str], None]) -> ExitCode:
    path = plan.verdict_of(target)
    parent = os.getpid()
    try:
        folders = target.install(CACHE)
    except TargetError as error:
        say(f"not judged: {error}")
        _write_unjudged(plan, target, str(error))
        return ExitCode.NOT_JUDGED
    python_path = [*folders, os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "properties", "-n", plan.workers),
            *("--subject", target.subject, "--hypothesis-profile", plan.profile),
            *("--verdicts", str(path), "--junitxml", str(path.with_suffix(".xml"))),
            *("--write-scripts", str(plan.scripts_of(target))),
            *("-p", "gate.judge.progress"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, python_path))},
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with(parent),
    )
    try:
        status = process.wait()
    except KeyboardInterrupt:
        # The terminal sent it to pytest as well, which writes what it has.
        process.wait()
        raise
    if not path.exists():
        ended = f"pytest ended with exit code {status} before any property"
        say(f"not judged: {ended}")
        _write_unjudged(plan, target, ended)
    return ExitCode(status) if status in (ExitCode.PASSED, ExitCode.FAILED) else ExitCode.NOT_JUDGED


def _write_unjudged(plan: Plan, target: Target, error: str) -> None:
    """A verdict file that says why there is no verdict."""
    write_json(
        plan.verdict_of(target),
        {
            "schema": SCHEMA,
            "subject": target.subject,
            "version": target.version,
            "profile": plan.profile,
            "finished": False,
            "error": error,
            "settings": {"source": run_settings.source()},
            "clauses": [],
            "tests": [],
        },
    )


def _finished(plan: Plan, target: Target) -> ExitCode | None:
    """Outcome of an earlier run of ``target`` that this plan would only repeat.

    Files of the user's may have changed since under the same name.
    """
    if target.is_local:
        return None
    try:
        verdict: dict[str, Any] = json.loads(plan.verdict_of(target).read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    same = (
        verdict["schema"] == SCHEMA
        and verdict["finished"]
        and verdict["profile"] == plan.profile
        and verdict["settings"]["source"] == run_settings.source()
    )
    return ExitCode(verdict["exit_code"]) if same else None


def _estimate(durations: Sequence[float], left: int) -> str:
    """What is left to wait, once there is a measurement to go by."""
    if not durations:
        return ""
    minutes = sum(durations) / len(durations) * left / 60
    return f", about {max(1, round(minutes))} min left"

"""``python -m gate.matrix TARGET...``: verdicts on subjects, and a page of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gate import profiles
from gate.matrix.run import Code, Plan, judge_all
from gate.matrix.target import Target, TargetError
from gate.report import compare, model, pages


def main(arguments: list[str] | None = None) -> int:
    """Judge the targets named on the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m gate.matrix",
        description="Judge subjects one after the other and report on all of them.",
        epilog="Exit code: 0 all pass or known, 1 a new failure, 2 something was not judged.",
    )
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="impl, vllm (as installed), vllm==X, a vLLM wheel, or a vLLM checkout[@X]",
    )
    parser.add_argument(
        "--profile", choices=profiles.NAMES, default="dev", help="Hypothesis profile (default: dev)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reports"), help="folder of the results (reports)"
    )
    parser.add_argument("--workers", default="auto", help="what pytest -n takes (auto)")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="of two targets, a base and a patch, tell only what changed, and fail only on it",
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out what --out has a whole verdict on"
    )
    options = parser.parse_args(arguments)
    try:
        targets = [Target.parse(text) for text in options.targets]
    except TargetError as error:
        parser.error(str(error))
    if options.compare and len(targets) != 2:
        parser.error(f"--compare takes a base and a patch, but {len(targets)} targets are named")
    slugs = [target.slug for target in targets]
    if twice := [slug for slug in slugs if slugs.count(slug) > 1]:
        parser.error(
            f"two targets would write {twice[0]}.json: name each once, and give checkouts folders "
            f"of different names"
        )
    plan = Plan(targets, options.out.resolve(), options.profile, options.workers, options.resume)
    try:
        code = judge_all(plan, _say, lambda: _report(plan))
    except KeyboardInterrupt:
        _say("interrupted: --resume goes on from here")
        code = Code.NOT_JUDGED
    _report(plan)
    if options.compare and all(plan.verdict_of(target).exists() for target in targets):
        code = _compare(plan)
    _say(f"report: {plan.folder / 'index.html'}, exit code {code}")
    return code


def _report(plan: Plan) -> None:
    """Write the pages of what has been judged so far, and name what has not."""
    judged = [target for target in plan.targets if plan.verdict_of(target).exists()]
    pages.write(
        plan.folder,
        [model.read(plan.verdict_of(target)) for target in judged],
        waiting=[str(target) for target in plan.targets if target not in judged],
    )


def _compare(plan: Plan) -> Code:
    """Print what the patch changes; its exit code is that of the changes."""
    base, patch = (model.read(plan.verdict_of(target)) for target in plan.targets)
    for run in (base, patch):
        if run.error:
            print(f"{run.title} was not judged: {run.error}", flush=True)
            return Code.NOT_JUDGED
    changes = compare.changes(base, patch)
    for change in changes:
        print(change)
    clauses = {id_ for change in changes for id_ in change.patch.clauses}
    print(
        f"{patch.title} against {base.title}: {len(changes)} properties changed, "
        f"of {len(clauses)} clauses",
        flush=True,
    )
    if not base.complete:
        print(f"{base.title} has no whole verdict to compare with", flush=True)
        return Code.NOT_JUDGED
    if any(change.is_new_failure for change in changes):
        return Code.NEW_FAILURE
    undecided = not patch.complete or any(change.is_lost for change in changes)
    return Code.NOT_JUDGED if undecided else Code.PASS


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

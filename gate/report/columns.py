"""Says in few words which of the runs, that stand side by side, is meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from gate.report.verdict_file import Run


def span(meant: Iterable[Run], runs: Sequence[Run]) -> str:
    """``impl 0.1.0; vllm 0.27.1 to 0.33.0``: neighbors of one subject are a range.

    Args:
        meant: Some of ``runs``.
        runs: All of them, in order.
    """
    targets = {run.target for run in meant}
    blocks = groupby(runs, key=lambda run: (run.subject, run.target in targets))
    return "; ".join(_range(list(block)) for (_, is_meant), block in blocks if is_meant)


def alike(runs: Sequence[Run]) -> list[list[Run]]:
    """``runs``, neighbors together that have one subject, and the same result on every clause."""
    return [list(block) for _, block in groupby(runs, key=_results)]


def _results(run: Run) -> object:
    return run.subject, run.error, [(one.label, one.remarks, one.counted) for one in run.clauses]


def _range(block: Sequence[Run]) -> str:
    first, *others = block
    if not others:
        return first.title
    last = others[-1].title.removeprefix(f"{first.subject} ")
    return f"{first.title}{', ' if len(others) == 1 else ' to '}{last}"

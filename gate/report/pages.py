"""Write the page and the summary of several runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from gate.leads import leads
from gate.paste import ROOT
from gate.report import reasons
from gate.report.columns import alike, span
from gate.report.rows import failures, rows
from gate.report.steps import steps
from gate.report.verdict_file import Run, coverage
from gate.results import LABELS, Verdict
from gate.shrinking import STOPPED_EARLY

_SYMBOLS = {
    Verdict.PASS: "✓",
    Verdict.STAND_IN: "○",
    Verdict.FAIL: "✗",
    Verdict.KNOWN: "!",
    Verdict.NOT_APPLICABLE: "·",
    Verdict.UNKNOWN: "?",
}

_LEGEND = (
    "A clause rests on the subject's own code where nothing else is said. Interpreted: on its "
    "kernels in Triton's interpreter. Stand-in: every property that ran has code of this "
    "repository compute what the clause says, which is no pass. Part: not all of its properties "
    "ran. Of examples, those come first that rest on what is said, where not all do."
)


def write(folder: Path, runs: Sequence[Run], waiting: Sequence[str] = ()) -> None:
    """Write ``index.html`` and ``summary.md`` into ``folder``.

    Args:
        folder: Exists.
        runs: In the order of their columns.
        waiting: Subjects still to be judged; the pages say that they are incomplete.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gate.report"),
        autoescape=jinja2.select_autoescape(["html.jinja"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["symbol"] = _SYMBOLS.__getitem__
    environment.filters["css"] = lambda verdict: verdict.value.replace(" ", "-")
    environment.filters["cell"] = lambda text: text.replace("|", r"\|").replace("\n", " ")
    environment.filters["span"] = lambda meant: span(meant, runs)
    environment.filters["href"] = lambda link: _href(link, folder)
    every = rows(runs)
    known = reasons.known(runs)
    generated = dict(coverage(runs))
    context = {
        "runs": runs,
        "alike": alike(runs),
        "rows": [row for row in every if row.properties],
        "unstated": [row.id for row in every if not row.properties],
        "failures": failures(every),
        "known": known,
        "number": {(reason.text, reason.link): at for at, reason in enumerate(known, 1)},
        "not_applicable": reasons.not_applicable(runs),
        "steps": steps(runs, known),
        "stopped_early": STOPPED_EARLY,
        "look_first": {run.target: leads(run.tests) for run in runs},
        "waiting": waiting,
        "legend": _LEGEND,
        "incomplete": [run.title for run in runs if not (run.finished or run.error)],
        "settings": _settings(runs),
        "grid": _grid(generated.pop("tp x dcp", {})),
        "bars": generated,
        "labels": [label for label in LABELS if any(run.count(label) for run in runs)],
        "verdicts": [
            verdict
            for verdict in Verdict
            if any(clause.verdict is verdict for run in runs for clause in run.clauses)
        ],
    }
    for template, name in (("index.html.jinja", "index.html"), ("summary.md.jinja", "summary.md")):
        text = environment.get_template(template).render(context)
        (folder / name).write_text(text, "utf-8")


def _href(link: str, folder: Path) -> str:
    """Where ``link``, a URL or a file of this repository, is as seen from a page in ``folder``."""
    return link if "://" in link else Path(os.path.relpath(ROOT / link, folder)).as_posix()


def _settings(runs: Sequence[Run]) -> Mapping[str, Mapping[str, Sequence[Run]]]:
    """By setting and value, the runs that have it; those that no run has are not there."""
    found: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        own = {"device": run.device, "world": run.world, "profile": run.profile, **run.settings}
        for name, value in own.items():
            found.setdefault(name, {}).setdefault(value, []).append(run)
    return found


@dataclass(frozen=True, slots=True)
class Grid:
    """Examples by tp (columns) and dcp (rows); None where dcp does not divide tp."""

    tps: Sequence[int]
    dcps: Sequence[int]
    counts: Sequence[Sequence[int | None]]
    most: int


def _grid(counts: Mapping[str, int]) -> Grid:
    drawn = {tuple(map(int, value.split(" x "))): count for value, count in counts.items()}
    tps = sorted({tp for tp, _ in drawn})
    dcps = sorted({dcp for _, dcp in drawn})
    return Grid(
        tps,
        dcps,
        [[drawn.get((tp, dcp), None if tp % dcp else 0) for tp in tps] for dcp in dcps],
        max(drawn.values(), default=1),
    )

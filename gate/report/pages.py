"""Write the page and the summary of several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from gate.report.verdict_file import Run, coverage
from gate.results import NO_PROPERTY, ClauseResult, Verdict
from properties.contract import contract

_SYMBOLS = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.KNOWN: "!",
    Verdict.NOT_APPLICABLE: "·",
    Verdict.UNKNOWN: "?",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One clause over all runs."""

    id: str
    text: str
    cells: Sequence[ClauseResult]


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
    rows = [
        Row(id_, text, [run.clauses[number] for run in runs])
        for number, (id_, text) in enumerate(contract().items())
    ]
    context = {
        "runs": runs,
        "rows": [row for row in rows if any(cell.tests for cell in row.cells)],
        "unstated": [row for row in rows if not any(cell.tests for cell in row.cells)],
        "no_property": NO_PROPERTY,
        "waiting": waiting,
        "incomplete": [run.title for run in runs if not run.finished],
        "settings": _settings(runs),
        "grid": _grid(coverage(runs).get("tp x dcp", {})),
        "bars": {name: counts for name, counts in coverage(runs).items() if name != "tp x dcp"},
        "Verdict": Verdict,
    }
    for template, name in (("index.html.jinja", "index.html"), ("summary.md.jinja", "summary.md")):
        text = environment.get_template(template).render(context)
        (folder / name).write_text(text, "utf-8")


def _settings(runs: Sequence[Run]) -> Mapping[str, Sequence[str]]:
    """Each setting's value by run; those that no run has are not there."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    return {name: [run.settings.get(name, "") for run in runs] for name in names}


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

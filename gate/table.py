"""The verdict on a subject as a table for a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fixtures.subjects.subject import Basis
from gate.judgement import Judgement
from gate.results import LABELS, NO_PROPERTY, NOT_SELECTED, ClauseResult, Verdict

_STYLES = {
    Verdict.PASS: "green",
    Verdict.STAND_IN: "cyan",
    Verdict.FAIL: "bold red",
    Verdict.KNOWN: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.UNKNOWN: "magenta",
}

# Clauses that are unknown for these reasons share a line.
_FOLDED = (NO_PROPERTY, NOT_SELECTED)


def render(judgement: Judgement, width: int, color: bool) -> str:
    """The table, clause by clause; clauses that nothing was run for share a line below it."""
    clauses = judgement.clauses()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("clause", no_wrap=True)
    table.add_column("tests", justify="right", no_wrap=True)
    table.add_column("examples", justify="right", no_wrap=True)
    table.add_column("at known failures", justify="right", min_width=8)
    table.add_column("verdict", no_wrap=True)
    table.add_column("rests on", no_wrap=True, min_width=len(Basis.INTERPRETED))
    table.add_column("reason", overflow="fold")
    for clause in clauses:
        if not _is_folded(clause):
            table.add_row(*_row(clause))
    console = Console(
        file=StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
    )
    console.print(table)
    if ids := [clause.id for clause in clauses if clause.reason == NO_PROPERTY]:
        console.print(Text(f"unknown, {NO_PROPERTY}: {', '.join(ids)}"))
    if left_out := sum(clause.reason == NOT_SELECTED for clause in clauses):
        console.print(Text(f"{NOT_SELECTED}: {left_out} clauses"))
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue().rstrip()


def _is_folded(clause: ClauseResult) -> bool:
    return clause.reason in _FOLDED


def _row(clause: ClauseResult) -> tuple[str | Text, ...]:
    return (
        clause.id,
        f"{clause.ran} of {clause.properties}"
        if clause.ran < clause.properties
        else f"{clause.ran}",
        clause.counted,
        f"{clause.known_examples:,}" if clause.known_examples else "",
        Text(clause.label, style=_STYLES[clause.verdict]),
        str(clause.rests_on or ""),
        Text(clause.reason),
    )


def summary(judgement: Judgement) -> str:
    """One line for a log: of the clauses that are known to fail, those with a bug first."""
    found = [clause.label for clause in judgement.clauses() if not _is_folded(clause)]
    examples = sum(result.examples for result in judgement.results.values())
    known = sum(result.known_examples for result in judgement.results.values())
    at_known = f" and {known:,} at known failures" if known else ""
    counts = ", ".join(f"{found.count(label)} {label}" for label in LABELS if label in found)
    state = "" if judgement.finished else " (incomplete)"
    return (
        f"{judgement.subject} {judgement.version} on {judgement.device}: clauses {counts}; "
        f"{examples:,} examples{at_known}, profile {judgement.profile}{state}"
    )

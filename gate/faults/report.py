"""Shares of faults that were killed: as a table, as JSON and as Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from gate.faults.outcome import Fate, Outcome
from properties.contract import contract

_STYLES = {
    Fate.KILLED: "green",
    Fate.SURVIVED: "bold red",
    Fate.EQUIVALENT: "dim",
    Fate.HUNG: "magenta",
    Fate.BROKEN: "magenta",
    Fate.NOT_RUN: "yellow",
}


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the faults that count were killed; equivalent ones do not count."""

    killed: int
    seeded: int

    def __str__(self) -> str:
        return f"{self.killed}/{self.seeded}"

    @property
    def fraction(self) -> float:
        return self.killed / self.seeded if self.seeded else 1.0


def share(outcomes: Sequence[Outcome]) -> Share:
    """Share of ``outcomes`` that were killed."""
    counted = [one for one in outcomes if one.fate is not Fate.EQUIVALENT]
    return Share(sum(one.fate is Fate.KILLED for one in counted), len(counted))


@dataclass(frozen=True)
class Report:
    """One run.

    Attributes:
        subject: Name.
        version: Of the subject.
        kind: ``faults`` for named ones, ``mutants``.
        outcomes: In the order in which the faults stand in their catalog.
        red: Properties that fail without any fault, with their reasons.
        complaints: What is wrong with the catalog, a sentence each.
    """

    subject: str
    version: str
    kind: str
    outcomes: Sequence[Outcome]
    red: Mapping[str, str]
    complaints: Sequence[str]

    @property
    def total(self) -> Share:
        return share(self.outcomes)

    def shares(self) -> dict[str, Share]:
        """Share by clause of the contract, or by module for mutants."""
        groups: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes:
            groups.setdefault(self._group(outcome), []).append(outcome)
        order = {clause: place for place, clause in enumerate(contract())}
        return {
            name: share(groups[name])
            for name in sorted(groups, key=lambda name: (order.get(name, -1), name))
        }

    def _group(self, outcome: Outcome) -> str:
        return outcome.id.partition(":")[0] if self.kind == "mutants" else outcome.clauses[0]

    def fallen_below(self, recorded: Mapping[str, Any]) -> list[str]:
        """Where a share is smaller than ``recorded``, a sentence each.

        Args:
            recorded: ``total`` and, under ``shares``, one for each clause or module, as
                fractions.
        """
        shares = self.shares()
        found = []
        if self.total.fraction < recorded["total"]:
            found.append(
                f"{self.total} of the {self.kind} on {self.subject} were killed, fewer than the "
                f"recorded share of {recorded['total']:.1%}"
            )
        for name, fraction in recorded["shares"].items():
            now = shares.get(name)
            if now is None:
                found.append(f"{name} has no {self.kind} any more")
            elif now.fraction < fraction:
                found.append(
                    f"{name}: {now} {self.kind} killed, fewer than the recorded share of "
                    f"{fraction:.1%}"
                )
        return found

    def shares_to_record(self) -> dict[str, Any]:
        """What :meth:`fallen_below` takes."""
        return {
            "total": _rounded_down(self.total.fraction),
            "shares": {name: _rounded_down(one.fraction) for name, one in self.shares().items()},
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "subject": self.subject,
            "version": self.version,
            "kind": self.kind,
            "killed": self.total.killed,
            "seeded": self.total.seeded,
            "shares": {name: str(one) for name, one in self.shares().items()},
            "red_without_a_fault": dict(self.red),
            "complaints": list(self.complaints),
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
        }

    def write(self, directory: Path) -> None:
        """Write ``<kind>-<subject>.json`` and ``.md``."""
        directory.mkdir(parents=True, exist_ok=True)
        stem = directory / f"{self.kind}-{self.subject}"
        stem.with_suffix(".json").write_text(json.dumps(self.to_json(), indent=1) + "\n", "utf-8")
        stem.with_suffix(".md").write_text(self.markdown(), "utf-8")

    def headline(self) -> str:
        """One line for a log."""
        fates = {fate: sum(one.fate is fate for one in self.outcomes) for fate in Fate}
        counts = ", ".join(f"{count} {fate}" for fate, count in fates.items() if count)
        return (
            f"{self.kind} on {self.subject} {self.version}: {self.total} killed "
            f"({self.total.fraction:.1%}); {counts or 'none'}"
        )

    def markdown(self) -> str:
        """The shares, then every fault that was not killed."""
        lines = [f"# {self.headline()}", "", "| clause | killed |", "| --- | --- |"]
        lines += [f"| {name} | {one} |" for name, one in self.shares().items()]
        rest = [one for one in self.outcomes if one.fate is not Fate.KILLED]
        if rest:
            lines += [
                "",
                "| not killed | fate | what is wrong | reason |",
                "| --- | --- | --- | --- |",
            ]
            lines += [
                f"| {one.id} | {one.fate} | {one.sentence} | {_line(one.reason)} |" for one in rest
            ]
        return "\n".join(lines) + "\n"

    def tables(self) -> list[Table]:
        """Shares by clause, and every fault that was not killed."""
        shares = Table(box=None, pad_edge=False)
        shares.add_column("module" if self.kind == "mutants" else "clause", no_wrap=True)
        shares.add_column("killed", justify="right")
        for name, one in self.shares().items():
            style = "green" if one.killed == one.seeded else "bold red"
            shares.add_row(name, Text(str(one), style=style))
        rest = Table(box=None, pad_edge=False)
        for heading in ("not killed", "fate", "what is wrong", "reason"):
            rest.add_column(heading, overflow="fold")
        for outcome in self.outcomes:
            if outcome.fate is not Fate.KILLED:
                fate = Text(outcome.fate.value, style=_STYLES[outcome.fate])
                rest.add_row(
                    Text(outcome.id), fate, Text(outcome.sentence), Text(_line(outcome.reason))
                )
        return [shares, rest] if rest.row_count else [shares]


def _rounded_down(fraction: float) -> float:
    """To four places, never to more than ``fraction``."""
    return math.floor(fraction * 10_000) / 10_000


def _line(text: str) -> str:
    """The last line of a traceback, or the text."""
    return text.strip().rpartition("\n")[2].replace("|", "\\|")

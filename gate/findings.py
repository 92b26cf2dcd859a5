"""The findings in vLLM: what the known list says, an item for each script that shows one."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from gate import known_list
from gate.known import Entry
from gate.known_list import FINDINGS, KnownListError
from gate.results import FailureClass

HEAD = """# The findings, and what would mend them

Written by `python -m gate findings` from [properties/known.toml](../properties/known.toml): what is
a bug that somebody can hit, and then what is latent, wrong but reached by nobody today. Files are
those of the package `vllm`. Each script needs torch and that vLLM alone, and prints expected and
got. [The plug-in](upstreaming.md) mends what is marked so, without a change of vLLM's files.
"""
_KINDS = {FailureClass.BUG: "Bugs", FailureClass.LATENT: "Latent"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong in vLLM.

    Attributes:
        name: Stem of its script.
        where: File and lines, in words.
        mending: What would make it right, in words.
        entries: Of the known list, the gravest class alone.
        clauses: That it breaks, in the order of the contract.
    """

    name: str
    where: str
    mending: str
    entries: tuple[Entry, ...]
    clauses: tuple[str, ...]

    @property
    def kind(self) -> FailureClass:
        return self.entries[0].kind

    def __str__(self) -> str:
        """A section of the page."""
        entries = self.entries
        reasons = _distinct([entry.reason for entry in entries])
        who = _distinct([entry.hits or entry.why for entry in entries])
        mended = "yes" if any(entry.mended for entry in entries) else "no"
        lines = (
            f"### {', '.join(self.clauses)}: {self.name}\n",
            *(f"- What: {reason}." for reason in reasons),
            *(f"- {'Who' if self.kind is FailureClass.BUG else 'Why latent'}: {w}." for w in who),
            f"- Versions: {_versions(entries)}.",
            f"- Where: {self.where}.",
            f"- Mending: {self.mending}.",
            f"- Mended by the plug-in: {mended}.",
            f"- [Script](../{entries[0].link})",
        )
        return "\n".join(lines) + "\n"


def read(path: Path, subjects: Collection[str]) -> tuple[Finding, ...]:
    """The findings of the known list at ``path``, bugs first, in the order of their tables.

    Raises:
        KnownListError: As for the known list, or a script of a bug or of what is latent has no
            table that says where the finding is and what would mend it, or has a table only.
    """
    entries = [entry for of in known_list.load(path, subjects).values() for entry in of]
    tables: Mapping[str, Mapping[str, Any]] = tomllib.loads(path.read_text("utf-8"))[FINDINGS]
    weighty = [entry for entry in entries if entry.kind in _KINDS]
    scripts = {Path(entry.link).stem for entry in weighty}
    if strange := sorted(scripts ^ tables.keys()):
        raise KnownListError(
            f"{path}: give every script of a bug or of what is latent a table "
            f"[{FINDINGS}.<script>], and no other one: see {', '.join(strange)}"
        )
    named_by = _clauses_of_tests(path.parent)
    findings = []
    for name, table in tables.items():
        if table.keys() != {"where", "mending"}:
            raise KnownListError(f"{path}: [{FINDINGS}.{name}] needs where and mending, no more")
        of = [entry for entry in weighty if Path(entry.link).stem == name]
        gravest = next(kind for kind in _KINDS if any(entry.kind is kind for entry in of))
        of = [entry for entry in of if entry.kind is gravest]
        broken = [
            clause
            for entry in of
            for clause in named_by.get(entry.test.partition("[")[0], [entry.clause])
        ]
        findings.append(
            Finding(name, table["where"], table["mending"], tuple(of), tuple(_distinct(broken)))
        )
    return tuple(sorted(findings, key=lambda finding: list(_KINDS).index(finding.kind)))


def page(findings: Sequence[Finding]) -> str:
    """docs/findings.md."""
    parts = [HEAD]
    for kind, title in _KINDS.items():
        parts += [f"## {title}\n", *(str(one) for one in findings if one.kind is kind)]
    return "\n".join(parts)


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _versions(entries: Sequence[Entry]) -> str:
    since = min(entry.since for entry in entries)
    if all(entry.device == "cuda" for entry in entries):
        return f"{since}, on a GPU, where no other was judged"
    untils = [entry.until for entry in entries]
    ends = [until for until in untils if isinstance(until, Version)]
    end = f"before {max(ends)}" if len(ends) == len(untils) else "still so"
    return f"from {since} on, {end}"


def _clauses_of_tests(folder: Path) -> dict[str, list[str]]:
    """Clauses that each property names, by its node id, read off without importing it."""
    found = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found[f"properties/{path.name}::{node.name}"] = [
                    argument.value
                    for decorator in node.decorator_list
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "clause"
                    for argument in decorator.args
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                ]
    return found

"""The catalogs of named faults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.faults.source import Edit, FaultError, edited, text_of
from properties.contract import contract

HERE = Path(__file__).parent
_REQUIRED = {"id", "clause", "sentence", "edits"}
_OPTIONAL = {"source", "equivalent"}
_EDIT = {"module", "within", "old", "new"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake that somebody could make.

    Attributes:
        id: Unique within its catalog.
        clause: The clause that forbids it, whose properties must catch it.
        sentence: What is wrong.
        edits: What puts it into the source.
        source: Where it was reported in public; may be empty.
        equivalent: Why no property can tell it from the right code; empty for most.
    """

    id: str
    clause: str
    sentence: str
    edits: tuple[Edit, ...]
    source: str = ""
    equivalent: str = ""


@dataclass(frozen=True, slots=True)
class Seed:
    """A fault or mutant, ready to be put into a subject.

    Attributes:
        id: Of the fault or mutant.
        clauses: Clauses, or families of them such as ``LIN``, whose properties must catch it.
        sentence: What is wrong.
        texts: Whole edited source by module.
        equivalent: As of :class:`Fault`.
    """

    id: str
    clauses: tuple[str, ...]
    sentence: str
    texts: Mapping[str, str]
    equivalent: str = ""

    def place_of(self, clauses: tuple[str, ...]) -> int | None:
        """First of the seed's clauses that a property which checks ``clauses`` checks.

        None where it checks none, and so need not kill the fault.
        """
        checked = {*clauses, *(clause.partition("-")[0] for clause in clauses)}
        return next((place for place, own in enumerate(self.clauses) if own in checked), None)


def seed_of(fault: Fault) -> Seed:
    """Make a fault's edits.

    Raises:
        FaultError: An edit does not fit the source any more.
    """
    texts: dict[str, str] = {}
    for edit in fault.edits:
        try:
            texts[edit.module] = edited(texts.get(edit.module, text_of(edit.module)), edit)
        except FaultError as error:
            raise FaultError(f"fault {fault.id}: {error}") from error
    return Seed(fault.id, (fault.clause,), fault.sentence, texts, fault.equivalent)


def catalog(subject: str) -> tuple[Fault, ...]:
    """Every named fault of ``subject``, in the order of the contract.

    Raises:
        FaultError: A catalog is not of the shape described by :class:`Fault`.
    """
    faults: list[Fault] = []
    for path in sorted((HERE / subject).glob("*.toml")):
        try:
            entries = tomllib.loads(path.read_text("utf-8")).get("fault", ())
        except tomllib.TOMLDecodeError as error:
            raise FaultError(f"{path}: not valid TOML: {error}") from error
        faults += [_fault(path, entry) for entry in entries]
    seen: set[str] = set()
    for fault in faults:
        if fault.id in seen:
            raise FaultError(f"two faults of {subject} are called {fault.id}")
        seen.add(fault.id)
    order = list(contract())
    return tuple(sorted(faults, key=lambda fault: order.index(fault.clause)))


def _fault(path: Path, entry: Mapping[str, Any]) -> Fault:
    where = f"{path}: fault {entry.get('id', '?')}"
    _check_keys(where, entry, _REQUIRED, _OPTIONAL)
    if entry["clause"] not in contract():
        raise FaultError(f"{where}: the contract has no clause {entry['clause']}")
    if not entry["edits"]:
        raise FaultError(f"{where} edits nothing")
    for edit in entry["edits"]:
        _check_keys(f"{where}, an edit", edit, _EDIT - {"within"}, {"within"})
    return Fault(**{**entry, "edits": tuple(Edit(**edit) for edit in entry["edits"])})


def _check_keys(
    where: str, entry: Mapping[str, Any], required: set[str], optional: set[str]
) -> None:
    if missing := required - entry.keys():
        raise FaultError(f"{where} lacks {', '.join(sorted(missing))}")
    if extra := entry.keys() - required - optional:
        raise FaultError(
            f"{where} has the unknown key {', '.join(sorted(extra))}: choose among "
            f"{', '.join(sorted(required | optional))}"
        )

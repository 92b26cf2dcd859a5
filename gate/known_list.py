"""Reads the known list, a file that holds the entries of every subject and version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from gate import predicate
from gate.known import Entry
from gate.predicate import Predicate
from gate.results import FailureClass
from properties.contract import contract

# The table that says of a script, once for all entries with it, where the finding is.
FINDINGS = "finding"


class KnownListError(Exception):
    """The known list is wrong; the message names the file, the entry and what to change."""


def load(path: Path, subjects: Collection[str]) -> Mapping[str, tuple[Entry, ...]]:
    """Every entry of the known list at ``path``, by subject, in the order of the file.

    Args:
        path: A table ``[[subject]]`` for each entry.
        subjects: Names that a table may have.

    Raises:
        KnownListError: The file cannot be read or is not TOML, or an entry is of no subject, is
            not of the shape described by :class:`Entry`, names no clause of the contract,
            matches every failure, or applies to no version.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise KnownListError(f"{path}: cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise KnownListError(f"{path}: not valid TOML: {error}") from error
    document.pop(FINDINGS, None)
    for name, tables in document.items():
        if name not in subjects or not isinstance(tables, list):
            allowed = " or ".join(f"[[{subject}]]" for subject in sorted(subjects))
            raise KnownListError(f"{path}: {name} is no table of entries: begin each by {allowed}")
    return {
        subject: tuple(
            _entry(path, subject, number, table) for number, table in enumerate(tables, 1)
        )
        for subject, tables in document.items()
    }


def _entry(path: Path, subject: str, number: int, table: Any) -> Entry:
    target = table.get("clause") or table.get("test") if isinstance(table, dict) else None
    where = f"{path}: entry {number} of [[{subject}]]" + (f" ({target})" if target else "")
    try:
        return Entry(**_fields(table))
    except ValueError as error:
        raise KnownListError(f"{where} {error}") from error


def _fields(table: Any) -> dict[str, Any]:
    """The attributes of an entry.

    Raises:
        ValueError: There are none in ``table``; the message goes on after the entry's name.
    """
    if not isinstance(table, dict):
        raise ValueError("is no table: write its keys below it, a line each")
    if unknown := [key for key in table if key not in _PARSERS]:
        raise ValueError(
            f"has the unknown key {', '.join(unknown)}: choose among {', '.join(_PARSERS)}"
        )
    if empty := [key for key, value in table.items() if not (isinstance(value, str) and value)]:
        raise ValueError(f"has an empty {', '.join(empty)}: write a string, or leave it out")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise ValueError(f"lacks {', '.join(missing)}")
    if ("clause" in table) == ("test" in table):
        raise ValueError("must name either a clause or a test")
    fields: dict[str, Any] = {}
    for key, value in table.items():
        fields[_ATTRIBUTES.get(key, str(key))] = _PARSERS[key](value)
    wanted, unwanted = ("hits", "why") if fields["kind"] is FailureClass.BUG else ("why", "hits")
    if wanted not in table or unwanted in table:
        raise ValueError(
            f"is of class {table['class']}, so it needs {wanted} and no {unwanted}: a bug says "
            f"who hits it and how, latent why nobody does, divergence what upstream promises"
        )
    if "until" in fields and fields["until"] <= fields["since"]:
        raise ValueError(
            f"applies to no version: until, {table['until']}, must be later than since, "
            f"{table['since']}"
        )
    return fields


def _clause(text: str) -> str:
    if text not in contract():
        raise ValueError(f"names {text}, but the contract has no clause {text}")
    return text


def _pattern(text: str) -> re.Pattern[str]:
    try:
        match = re.compile(text)
    except re.error as error:
        raise ValueError(f"has a match that is not a regular expression: {error}") from error
    if match.search("") is not None:
        raise ValueError(
            f"has a match, {text!r}, that fits every failure and would hide new ones: quote the "
            f"message of the one that is known"
        )
    return match


def _class(text: str) -> FailureClass:
    try:
        return FailureClass(text)
    except ValueError:
        raise ValueError(f"is of class {text!r}: choose among {', '.join(FailureClass)}") from None


def _when(text: str) -> Predicate:
    try:
        return predicate.parse(text)
    except ValueError as error:
        raise ValueError(f"has a when, {text!r}, that {error}") from error


def _device(text: str) -> str:
    if text not in ("cpu", "cuda"):
        raise ValueError(f"is of the device {text!r}: write cpu or cuda, or leave it out")
    return text


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise ValueError(f"is dated by {text!r}: write a version such as 0.32.0") from None


# What an entry may hold, and how each is read.
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "clause": _clause,
    "test": str,
    "class": _class,
    "match": _pattern,
    "when": _when,
    "reason": str,
    "hits": str,
    "why": str,
    "link": str,
    "since": _version,
    "until": _version,
    "device": _device,
    "mended": str,
}
_REQUIRED = ("class", "match", "reason", "link", "since")
# Keys that Python does not take for names of attributes.
_ATTRIBUTES = {"class": "kind"}

"""What a property was given, counted by feature, so that a reader sees the coverage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from fixtures.model.dims import Request
from fixtures.model.layout import Layout

Generated = dict[str, dict[str, int]]


def features(value: Any) -> Iterator[tuple[str, str]]:
    """Pairs of a feature and its value, found anywhere in an argument of a property."""
    match value:
        case Layout():
            yield "tp x dcp", f"{value.tp} x {value.dcp}"
            yield "interleave", str(value.interleave)
        case Request():
            yield "sequence length", _bucket(value.seq_len)
            yield "query length", _bucket(value.query_len)
        case Enum():
            yield _words(type(value).__name__), str(value.value).replace("_", " ")
        case list() | tuple():
            for part in value:
                yield from features(part)
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name == "dtype" and isinstance(inner, str):
                yield "dtype", inner.removeprefix("torch.")
            elif not isinstance(value, Layout | Request):
                yield from features(inner)


class FeatureCounts:
    """Counts in how many examples each value of each feature occurred."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, arguments: Iterable[Any]) -> None:
        """Count one example."""
        for feature, value in {pair for argument in arguments for pair in features(argument)}:
            self._counts.setdefault(feature, Counter())[value] += 1

    def to_json(self) -> Generated:
        return {
            feature: dict(sorted(counts.items()))
            for feature, counts in sorted(self._counts.items())
        }


def merge(parts: Iterable[Generated]) -> Generated:
    """The sum of what several tests were given."""
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for feature, counts in part.items():
            total.setdefault(feature, Counter()).update(counts)
    return {feature: dict(counts) for feature, counts in sorted(total.items())}


def _bucket(length: int) -> str:
    """Powers of two, such as ``5-8``; 1 and 2 stand alone."""
    if length <= 2:
        return str(length)
    high = 1 << (length - 1).bit_length()
    return f"{high // 2 + 1}-{high}"


def _words(name: str) -> str:
    """``EmptyShard`` as ``empty shard``."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()

"""Goes past failures that are written down, so that others in the same test come to light."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import is_hypothesis_test
from hypothesis.strategies import DataObject, SearchStrategy, data

from gate.counting import Tally
from gate.known import Entry, explanation
from gate.shares import PARAMETER, share_of

_ENTRY = "explained_by_the_known_list"
# Arguments of a property that are no part of an example.
_NOT_OF_AN_EXAMPLE = ("subject", "request", PARAMETER)


def names_of(item: pytest.Function) -> tuple[set[str] | None, bool]:
    """Names of what an example of ``item`` gives, and whether it draws more under a label.

    The names are None in a test without Hypothesis, which has no examples.
    """
    if not is_hypothesis_test(item.function):
        return None, False
    given = item.function.hypothesis._given_kwargs
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names = {*given, *parameters}.difference(_NOT_OF_AN_EXAMPLE)
    drawing = {name for name, one in given.items() if isinstance(one, type(data()))}
    return names - drawing, bool(drawing)


def explained_by(error: BaseException) -> Entry | None:
    """The entry of the known list that explained ``error`` when an example raised it."""
    entry: Entry | None = getattr(error, _ENTRY, None)
    return entry


@contextmanager
def past_listed(
    item: pytest.Function, entries: Sequence[Entry], tally: Tally
) -> Iterator[dict[Entry, Exception]]:
    """Let examples of ``item`` that fail as listed pass; yields the first failure of each entry.

    Hypothesis would end its search at a listed failure, and spend hundreds of examples on
    finding a smaller one.
    """
    met: dict[Entry, Exception] = {}
    if not entries or not is_hypothesis_test(item.function):
        yield met
        return
    share = share_of(item)
    handle = item.function.hypothesis
    inner = handle.inner_test

    @functools.wraps(inner)
    def one_example(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        whole = share.whole
        arguments = {
            name: value for name, value in kwargs.items() if name not in _NOT_OF_AN_EXAMPLE
        }
        for name, value in kwargs.items():
            if isinstance(value, DataObject):
                del arguments[name]
                _note_draws(value, arguments)
        try:
            return inner(*args, **kwargs)
        except Exception as error:
            entry = explanation(entries, error, arguments)
            if entry is None:
                raise
            share.whole = whole
            tally.ended_at_known_failure()
            vars(error)[_ENTRY] = entry
            met.setdefault(entry, error)
            return None

    handle.inner_test = one_example
    try:
        yield met
    finally:
        handle.inner_test = inner


def _note_draws(drawn: DataObject, arguments: dict[str, Any]) -> None:
    """Put what the property draws under a label among its arguments, by that name."""
    draw = drawn.draw

    def noting(strategy: SearchStrategy[Any], label: Any = None) -> Any:
        value = draw(strategy, label)
        if label is not None:
            arguments[label] = value
        return value

    vars(drawn)["draw"] = noting

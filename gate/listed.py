"""Goes past failures that are written down, so that others in the same test come to light."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

from gate.known import Entry, explanation
from gate.shares import share_of


@contextmanager
def past_listed(
    item: pytest.Function, entries: Sequence[Entry]
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
        try:
            return inner(*args, **kwargs)
        except Exception as error:
            entry = explanation(entries, error)
            if entry is None:
                raise
            share.whole = whole
            met.setdefault(entry, error)
            return None

    handle.inner_test = one_example
    try:
        yield met
    finally:
        handle.inner_test = inner

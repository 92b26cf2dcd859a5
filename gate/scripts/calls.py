"""Remember what an example had the ranks do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import is_hypothesis_test

from fixtures.model.layout import Layout
from fixtures.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class Call:
    """One program that every rank of a layout was given.

    Attributes:
        program: The function.
        layout: Of the ranks.
        args: Behind the subject.
        kwargs: Likewise.
    """

    program: Callable[..., Any]
    layout: Layout
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __str__(self) -> str:
        module = self.program.__module__.rpartition(".")[2]
        return f"{module}.{self.program.__name__}"


@contextmanager
def recorded(item: pytest.Function) -> Iterator[list[Call]]:
    """The calls of the example that ``item`` runs, those of its last one in the end.

    Hypothesis runs the smallest failing example last, so they are that example's.
    """
    calls: list[Call] = []
    run = Subject.run

    def remember(
        subject: Subject, layout: Layout, program: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        calls.append(Call(program, layout, args, kwargs))
        return run(subject, layout, program, *args, **kwargs)

    with mock.patch.object(Subject, "run", remember):
        if not is_hypothesis_test(item.function):
            yield calls
            return
        handle = item.function.hypothesis
        inner = handle.inner_test

        @functools.wraps(inner)
        def one_example(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            calls.clear()
            return inner(*args, **kwargs)

        with mock.patch.object(handle, "inner_test", one_example):
            yield calls

"""Remember what an example had the ranks do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from fixtures.model.layout import Layout
from fixtures.subjects.subject import Subject
from gate.examples import Examples


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
def recorded(examples: Examples) -> Iterator[list[Call]]:
    """The calls of the example that ran last, once the context is left.

    Hypothesis runs the smallest failing example last, so they are that example's.

    Args:
        examples: Of the test that runs inside the context.
    """
    calls: list[Call] = []
    number = examples.started
    run = Subject.run

    def only_of_this_example() -> None:
        nonlocal number
        if number != examples.started:
            number = examples.started
            calls.clear()

    def remember(
        subject: Subject, layout: Layout, program: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        only_of_this_example()
        calls.append(Call(program, layout, args, kwargs))
        return run(subject, layout, program, *args, **kwargs)

    with mock.patch.object(Subject, "run", remember):
        try:
            yield calls
        finally:
            only_of_this_example()

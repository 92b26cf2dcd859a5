"""Count the examples that a property really ran, and remember the one that failed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import is_hypothesis_test
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.strategies import DataObject

from gate.generated import Census
from gate.shares import share_of

_DESCRIPTION = "counterexample_in_words"
_REJECTED = (UnsatisfiedAssumption, StopTest, pytest.skip.Exception)


@dataclass
class Tally:
    """Examples of one test that ran to an end, passed or failed, and what they held.

    Attributes:
        started: Whether the body of the test was entered, be it for a rejected example.
        examples: How many ran to an end.
        known_examples: How many ended at a known failure.
        census: What the passing ones held.
    """

    started: bool = False
    examples: int = 0
    known_examples: int = 0
    census: Census = field(default_factory=Census)

    def ended_at_known_failure(self) -> None:
        """Count the example that failed last apart from the others."""
        self.examples -= 1
        self.known_examples += 1


@contextmanager
def counted(item: pytest.Function) -> Iterator[Tally]:
    """Count the examples of ``item`` while it runs inside the context.

    A test without Hypothesis is one example. An exception that an example raises carries
    the example's description, see :func:`description_of`.
    """
    tally = Tally()
    if not is_hypothesis_test(item.function):
        tally.started, tally.examples = True, 1
        yield tally
        return
    handle = item.function.hypothesis
    inner = handle.inner_test
    share = share_of(item)

    @functools.wraps(inner)
    def one_example(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        tally.started = True
        drawn = {
            name: value
            for name, value in kwargs.items()
            if name not in item.fixturenames and not isinstance(value, DataObject)
        }
        if not share.has(*drawn.items()):
            return None
        try:
            result = inner(*args, **kwargs)
        except _REJECTED:
            raise
        except Exception as error:
            share.failed()
            tally.examples += 1
            vars(error)[_DESCRIPTION] = describe(drawn)
            raise
        tally.examples += 1
        tally.census.add(drawn.values())
        return result

    handle.inner_test = one_example
    try:
        yield tally
    finally:
        handle.inner_test = inner


def describe(arguments: Mapping[str, Any]) -> str:
    """An example in words: one line for each argument, as its own ``str`` puts it."""
    return "\n".join(f"{name}: {value!s}" for name, value in arguments.items())


def description_of(error: BaseException) -> str:
    """Description of the example that raised ``error``, empty where there is none."""
    description: str = getattr(error, _DESCRIPTION, "")
    return description

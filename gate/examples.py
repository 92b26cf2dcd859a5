"""Runs the examples of one test: counts them, cuts its share, and tolerates known failures.

One wrapper around the body of the test sees an example begin and end. Hypothesis' observations
are the better source for what is known once an example is the smallest: its notes and the choices
that repeat it. They cannot count examples: of one that is replayed by ``reproduce_failure`` there
is none, a failing ``@example`` is told as "gave up" and one that skips as "passed", and arguments
come without their types. They cost a few percent, so they begin with the first failure.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import is_hypothesis_test
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.internal import observability
from hypothesis.internal.observability import Observation, TestCaseObservation
from hypothesis.strategies import DataObject

from gate.features import FeatureCounts
from gate.known import Entry, explanation
from gate.shares import share_of

_ATTRIBUTE = "failing_example_in_words"
_REJECTED = (UnsatisfiedAssumption, StopTest, pytest.skip.Exception)


@dataclass
class Examples:
    """What became of the examples of one test.

    Attributes:
        started: How many reached the body of the test, be it to be rejected there.
        finished: How many ran to an end, passed or failed.
        features: What the passing ones held.
        known: The first failure of each known entry that explained one.
        decorators: By which Hypothesis repeats its smallest failing examples.
    """

    started: int = 0
    finished: int = 0
    features: FeatureCounts = field(default_factory=FeatureCounts)
    known: dict[Entry, Exception] = field(default_factory=dict)
    decorators: list[str] = field(default_factory=list)


@contextmanager
def tolerate_known_failures(item: pytest.Function, entries: Sequence[Entry]) -> Iterator[Examples]:
    """Count the examples of ``item``, and let those pass that fail as known.

    Hypothesis would end its search at a known failure, and spend hundreds of examples on finding
    a smaller one. What another example raises tells the example, see :func:`in_words`.

    Args:
        item: Runs inside the context. Without Hypothesis it is one example, and its failure is
            raised, known or not.
        entries: Known failures of ``item``.
    """
    examples = Examples()
    if not is_hypothesis_test(item.function):
        examples.started = examples.finished = 1
        yield examples
        return
    handle = item.function.hypothesis
    inner = handle.inner_test
    share = share_of(item)
    observer: _Observer | None = None

    @functools.wraps(inner)
    def one_example(*args: Any, **kwargs: Any) -> Any:
        nonlocal observer
        __tracebackhide__ = True
        examples.started += 1
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
            examples.finished += 1
            vars(error)[_ATTRIBUTE] = describe(drawn)
            if entry := explanation(entries, error):
                examples.known.setdefault(entry, error)
                return None
            share.failed()
            if observer is None:
                observer = stack.enter_context(_observed(examples))
            observer.error = error
            raise
        examples.finished += 1
        examples.features.add(drawn.values())
        return result

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(handle, "inner_test", one_example))
        yield examples


@dataclass
class _Observer:
    """Hears of each example from Hypothesis when it is over.

    Attributes:
        examples: Gets what Hypothesis tells of the smallest failing ones.
        error: What the present example raised.
    """

    examples: Examples
    error: Exception | None = None

    def __call__(self, told: Observation) -> None:
        if not isinstance(told, TestCaseObservation):
            return
        if told.how_generated == "minimal failing test case":
            self.examples.decorators.append(told.metadata.reproduction_decorator or "")
            # It may pass in its last replay, which Hypothesis calls flaky.
            if self.error is not None:
                notes = told.metadata.notes
                own = [note for note in notes if not note.startswith("Draw ")]
                lines = [in_words(self.error), *(own or notes)]
                vars(self.error)[_ATTRIBUTE] = "\n".join(filter(None, lines))
        self.error = None


@contextmanager
def _observed(examples: Examples) -> Iterator[_Observer]:
    observer = _Observer(examples)
    # Coverage would be traced line by line.
    with (
        mock.patch.object(observability, "OBSERVABILITY_COLLECT_COVERAGE", False),
        observability.with_observability_callback(observer),
    ):
        yield observer


def describe(arguments: Mapping[str, Any]) -> str:
    """An example in words: one line for each argument, as its own ``str`` puts it."""
    return "\n".join(f"{name}: {value!s}" for name, value in arguments.items())


def in_words(error: BaseException) -> str:
    """The example that raised ``error``, empty where there is none.

    A line for each argument; for a smallest example also what it noted while it ran, else what
    it drew then.
    """
    words: str = getattr(error, _ATTRIBUTE, "")
    return words

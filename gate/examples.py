"""Runs the examples of one test: counts them, and tolerates known failures.

One wrapper around the body of the test sees an example begin and end. Hypothesis' observations
are the better source for what is known once an example is the smallest: its notes, and what
repeats it. They cannot count examples: of one that ``reproduce_failure`` replays there is none, a
failing ``@example`` is told as "gave up" and one that skips as "passed", and arguments come
without their types. Nor may they be asked for earlier: each costs a traceback in words, which is
most of the time of a search for the smallest example.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import is_hypothesis_test
from hypothesis.control import current_build_context
from hypothesis.errors import StopTest, UnsatisfiedAssumption
from hypothesis.internal.observability import (
    Observation,
    TestCaseObservation,
    add_observability_callback,
    remove_observability_callback,
)
from hypothesis.strategies import DataObject, SearchStrategy, data

from gate.features import FeatureCounts
from gate.known import Entry, explanation
from gate.shrinking import budget

_ATTRIBUTE = "failing_example_in_words"
_ENTRY = "explained_by_the_known_list"
# Arguments of a property that are no part of an example.
_NOT_OF_AN_EXAMPLE = ("subject", "request")
_REJECTED = (UnsatisfiedAssumption, StopTest)
# What Hypothesis takes for a failure of an example.
_FAILED = (Exception, SystemExit, pytest.fail.Exception)


@dataclass
class Examples:
    """What became of the examples of one test.

    Attributes:
        started: How many reached the body of the test, be it to be rejected there.
        finished: How many ran to an end, and passed or failed as nobody knew.
        at_known_failures: How many ended at a known failure.
        features: What the passing ones held.
        known: The first failure of each known entry that explained one.
        decorators: By which Hypothesis repeats its smallest failing examples.
        stopped_early: True if smaller ones than these were not looked for to the end.
    """

    started: int = 0
    finished: int = 0
    at_known_failures: int = 0
    features: FeatureCounts = field(default_factory=FeatureCounts)
    known: dict[Entry, BaseException] = field(default_factory=dict)
    decorators: list[str] = field(default_factory=list)
    stopped_early: bool = False


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
    hearing = _Hearing(examples)

    @functools.wraps(inner)
    def one_example(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        examples.started += 1
        drawn = {
            name: value
            for name, value in kwargs.items()
            if name not in item.fixturenames and not isinstance(value, DataObject)
        }
        arguments = {
            name: value
            for name, value in kwargs.items()
            if name not in _NOT_OF_AN_EXAMPLE and not isinstance(value, DataObject)
        }
        for value in kwargs.values():
            if isinstance(value, DataObject):
                _note_draws(value, arguments)
        if current_build_context().is_final:
            hearing.begin()
        try:
            result = inner(*args, **kwargs)
        except _REJECTED:
            raise
        except pytest.skip.Exception as skipped:
            # Hypothesis would end here, and what was found before be forgotten.
            if examples.finished or examples.at_known_failures:
                raise RuntimeError(f"an example skips after others ran: {skipped}") from skipped
            raise
        except _FAILED as error:
            vars(error)[_ATTRIBUTE] = describe(drawn)
            if entry := explanation(entries, error, arguments):
                vars(error)[_ENTRY] = entry
                examples.at_known_failures += 1
                examples.known.setdefault(entry, error)
                return None
            examples.finished += 1
            hearing.error = error
            raise
        examples.finished += 1
        examples.features.add(drawn.values())
        return result

    try:
        with (
            budget(lambda: examples.started) as shrinking,
            mock.patch.object(handle, "inner_test", one_example),
        ):
            yield examples
    finally:
        examples.stopped_early = shrinking.stopped
        hearing.end()


@dataclass
class _Hearing:
    """Hears from Hypothesis of an example that it runs for the last time.

    Attributes:
        examples: Gets what is told.
        error: What it raised; none if it passes this time, which Hypothesis calls flaky.
    """

    examples: Examples
    error: BaseException | None = None

    def begin(self) -> None:
        self.end()
        self.error = None
        add_observability_callback(self._hear)

    def end(self) -> None:
        remove_observability_callback(self._hear)

    def _hear(self, told: Observation) -> None:
        self.end()
        if isinstance(told, TestCaseObservation) and told.metadata.reproduction_decorator:
            self.examples.decorators.append(told.metadata.reproduction_decorator)
            if self.error is not None:
                notes = told.metadata.notes
                own = [note for note in notes if not note.startswith("Draw ")]
                lines = [in_words(self.error), *(own or notes)]
                vars(self.error)[_ATTRIBUTE] = "\n".join(filter(None, lines))


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


def is_of_an_example(error: BaseException) -> bool:
    """Whether an example raised ``error``, and not, say, the strategy that was to draw it."""
    return hasattr(error, _ATTRIBUTE)


def explained_by(error: BaseException) -> Entry | None:
    """The entry of the known list that explained ``error`` when an example raised it."""
    entry: Entry | None = getattr(error, _ENTRY, None)
    return entry


def names_of(item: pytest.Function) -> tuple[set[str] | None, bool]:
    """Names of what an example of ``item`` gives, and whether it draws more under a label.

    The names are None in a test without Hypothesis, which has no examples.
    """
    if not is_hypothesis_test(item.function):
        return None, False
    given = item.function.hypothesis._given_kwargs
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    names = {*given, *parameters}.difference(_NOT_OF_AN_EXAMPLE)
    drawing = {name for name, strategy in given.items() if isinstance(strategy, type(data()))}
    return names - drawing, bool(drawing)


def _note_draws(drawn: DataObject, arguments: dict[str, Any]) -> None:
    """Put what the property draws under a label among its arguments, by that name."""
    draw = drawn.draw

    def noting(strategy: SearchStrategy[Any], label: Any = None) -> Any:
        value = draw(strategy, label)
        if label is not None:
            arguments[label] = value
        return value

    vars(drawn)["draw"] = noting

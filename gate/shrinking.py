"""Ends Hypothesis' search for a smaller failing example after so many tries.

Where each example that deadlocks costs a part of a second, a subject with one wrong line, of
which half of the properties fail, else waits for its verdict for hours. A budget of tries and not
of seconds, so that two runs of one revision show the same example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.internal.conjecture.engine import ConjectureRunner, ExitReason

BUDGET = 40
STOPPED_EARLY = f"there may be a smaller one: the search was stopped after {BUDGET} examples"


@dataclass
class Shrinking:
    """The search for smaller examples of one test.

    Attributes:
        stopped: True once the budget was spent before the search was over.
    """

    stopped: bool = False


@contextmanager
def budget(started: Callable[[], int]) -> Iterator[Shrinking]:
    """Let a test that Hypothesis runs inside the context shrink by ``BUDGET`` examples.

    Hypothesis limits successful tries and seconds alone, and has no public hook between two
    tries. What it found by then it reports as ever: the smallest example is run once more.

    Args:
        started: How many examples of the test have reached its body. Those that are refused
            while they are drawn cost little, and count as none.
    """
    shrinking = Shrinking()

    class Runner(ConjectureRunner):
        _limit: int | None = None

        def shrink_interesting_test_cases(self) -> None:
            self._limit = started() + BUDGET
            super().shrink_interesting_test_cases()
            self._limit = None

        def test_function(self, data: ConjectureData) -> None:
            super().test_function(data)
            if self._limit is not None and started() >= self._limit:
                shrinking.stopped = True
                self.exit_with(ExitReason.max_shrinks)

    with mock.patch("hypothesis.core.ConjectureRunner", Runner):
        yield shrinking

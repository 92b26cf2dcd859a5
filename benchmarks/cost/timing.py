"""Microseconds of a step: CUDA graphs of many steps, replayed in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from benchmarks.cost.ranks import Ranks

# Runs step i, with the weights of set i.
Step = Callable[[int], object]


@dataclass(frozen=True)
class Times:
    """Microseconds of one step, one for each replay; of the slowest rank."""

    each: Sequence[float]

    @property
    def quartiles(self) -> list[float]:
        return quartiles(self.each)


def quartiles(numbers: Sequence[float]) -> list[float]:
    """Lower quartile, median and upper quartile."""
    shares = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    found = torch.tensor(numbers, dtype=torch.float64).quantile(shares)
    return [float(f"{one:.4g}") for one in found.tolist()]


class Clock:
    """Measures steps.

    Args:
        ranks: Who measures together.
        replays: Timed replays of each graph.
    """

    def __init__(self, ranks: Ranks, replays: int) -> None:
        self.ranks = ranks
        self.replays = replays
        self.cuda = ranks.device.type == "cuda"
        if self.cuda:
            # One pool for every graph; it lives as long as a graph in it, so one stays.
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream()
            self._anchor = self._capture(lambda i: torch.zeros(1, device=ranks.device), 1)

    def measure(self, runs: Mapping[str, Step], steps: int) -> dict[str, Times]:
        """Times of each run, replayed in turns so that drift meets all of them alike."""
        if not self.cuda:
            # A CPU only shows that it runs.
            steps = 2
        replays = {name: self._replay_of(step, steps) for name, step in runs.items()}
        for replay in replays.values():
            for _ in range(2):
                self._once(replay)
        taken = torch.zeros(len(replays), self.replays, dtype=torch.float64)
        for turn in range(self.replays):
            for index, replay in enumerate(replays.values()):
                taken[index, turn] = self._once(replay) / steps
        taken = self.ranks.slowest(taken)
        return {name: Times(row.tolist()) for name, row in zip(replays, taken, strict=True)}

    def _replay_of(self, step: Step, steps: int) -> Callable[[], None]:
        if self.cuda:
            return self._capture(step, steps).replay

        def replay() -> None:
            for index in range(steps):
                step(index)

        return replay

    def _capture(self, step: Step, steps: int) -> torch.cuda.CUDAGraph:
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            # Handles and workspaces are made on first use, which a capture would forbid.
            for index in range(2):
                step(index)
            torch.cuda.synchronize()
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                for index in range(steps):
                    step(index)
            finally:
                graph.capture_end()
        current.wait_stream(self._stream)
        return graph

    def _once(self, replay: Callable[[], None]) -> float:
        """Microseconds of one replay."""
        if not self.cuda:
            start = time.perf_counter()
            replay()
            return 1e6 * (time.perf_counter() - start)
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.ranks.aligned()
        start_event.record()
        replay()
        end_event.record()
        torch.cuda.synchronize()
        return 1e3 * start_event.elapsed_time(end_event)

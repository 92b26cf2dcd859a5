"""Steps of the serving machine a second: ``python -m benchmarks.serving [--steps N]``.

Runs the machine of ``properties/test_serving.py`` on impl in the simulated world until it has
made N steps, all of them clean, and prints how many it made in a second of processor time and
of the clock. A step is one rule: a request admitted, finished or preempted, weights or layout
changed, or a batch served on both paths and compared with the oracle.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from fixtures.subjects import registry
from gate.arguments import positive
from properties.test_serving import Serving


class Counted(Serving):
    """The machine, counting its steps and those that served a batch."""

    made = 0
    served = 0

    @invariant()
    def count(self) -> None:
        Counted.made += 1

    def _run(self, *args: object) -> object:  # type: ignore[override]
        Counted.served += 1
        return super()._run(*args)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=positive, default=10_000)
    wanted = parser.parse_args().steps
    torch.set_num_threads(1)
    subject, _ = registry.load("impl", "simulated")
    Counted.subject = subject
    clock, processor = time.perf_counter(), time.process_time()
    for number in itertools.count():
        if Counted.made >= wanted:
            break
        run_state_machine_as_test(
            seed(number)(Counted),
            settings=settings(
                max_examples=50,
                stateful_step_count=50,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    print(f"{Counted.made} steps clean, {Counted.served} of them batches on both paths")
    print(f"{Counted.made / processor:.0f} steps a second of processor time")
    print(f"{Counted.made / clock:.0f} steps a second by the clock, in {clock:.0f} s")


if __name__ == "__main__":
    main()

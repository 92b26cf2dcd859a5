"""Many examples, a tenth of them failing in every way: ``python -m tests.ranks.soak``.

Watches memory and file descriptors of this process, of the fork server and of the ranks.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path
from typing import NamedTuple

from fixtures.ranks.errors import Deadlock, RankDied, RankRaised, TimedOut, WorldError
from fixtures.ranks.forked import ForkedWorld
from fixtures.ranks.simulated import SimulatedWorld
from tests.ranks import programs

SIMULATED: dict[str, type[WorldError]] = {
    "raise": RankRaised,
    "raise in a chain": RankRaised,
    "raise what cannot be pickled": RankRaised,
    "exit": RankDied,
    "return": Deadlock,
    "loop": TimedOut,
}
FORKED = SIMULATED | {
    "exit at once": RankDied,
    "crash": RankDied,
    "be killed": RankDied,
    "loop over whatever is raised": TimedOut,
}
_LOOP_SECONDS = 1.0


class Usage(NamedTuple):
    """What the processes of a soak hold.

    Attributes:
        parent: Resident memory of this process, in KiB.
        others: Memory of fork server and ranks, each page once, in KiB. Without pages of files:
            how those count depends on who else on the machine has loaded them.
        descriptors: Open file descriptors of this process and of the fork server.
    """

    parent: int
    others: int
    descriptors: int


def usage(world: SimulatedWorld | ForkedWorld) -> Usage:
    pids = world.pids if isinstance(world, ForkedWorld) else []
    servers = [_parent_of(pids[0])] if pids else []
    others = [*servers, *pids]
    return Usage(
        parent=_kib(os.getpid(), "Rss"),
        others=sum(_kib(pid, "Pss_Anon") + _kib(pid, "Pss_Shmem") for pid in others),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in [os.getpid(), *servers]),
    )


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise ValueError(f"no {field} for process {pid}")


def soak(
    world: SimulatedWorld | ForkedWorld, examples: int, settle: int, seed: int
) -> tuple[Usage, Usage]:
    """Usage after ``settle`` of ``examples`` examples, and after all of them.

    Raises:
        AssertionError: An example did not end as it should.
    """
    generator = random.Random(seed)
    expected = FORKED if isinstance(world, ForkedWorld) else SIMULATED
    ways, timeout, settled = list(expected), world.timeout, None
    for example in range(examples):
        if example % 10 == 0:
            how = ways[example // 10 % len(ways)]
            who = tuple(sorted(generator.sample(range(world.size), generator.choice([1, 2]))))
            world.timeout = _LOOP_SECONDS if expected[how] is TimedOut else timeout
            error = _failure(world, how, who)
            assert type(error) is expected[how], f"{how} of {who}: {error}"
            assert [report.rank for report in error.reports] == list(range(world.size))
            world.timeout = timeout
        else:
            results = world.run(programs.fail, "raise", who=())
            assert results == ["through"] * world.size
        if example + 1 == settle:
            settled = usage(world)
    assert settled is not None
    world.run(programs.my_rank)
    return settled, usage(world)


def _failure(world: SimulatedWorld | ForkedWorld, how: str, who: tuple[int, ...]) -> WorldError:
    try:
        world.run(programs.fail, how, who=who)
    except WorldError as error:
        return error
    raise AssertionError(f"{how} of {who} did not fail")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--settle", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for world in (SimulatedWorld(8), ForkedWorld(4)):
        start = time.monotonic()
        before, after = soak(world, options.examples, options.settle, options.seed)
        world.close()
        seconds = time.monotonic() - start
        print(f"{world.kind}: {options.examples} examples in {seconds:.0f} s", flush=True)
        for name, old, new in zip(Usage._fields, before, after, strict=True):
            print(f"  {name}: {old} -> {new} ({(new - old) / max(old, 1):+.1%})", flush=True)


if __name__ == "__main__":
    main()

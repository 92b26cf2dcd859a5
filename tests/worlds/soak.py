"""Many examples, a tenth of them failing in every way: ``python -m tests.worlds.soak``.

Watches the memory and the file descriptors of the parent, the zygote and the ranks.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

from fixtures.worlds.api import World
from fixtures.worlds.errors import Deadlock, RankDied, RankRaised, TimedOut, WorldError
from fixtures.worlds.nursery import zygote_for
from fixtures.worlds.processes import ProcessWorld
from fixtures.worlds.simulated import SimulatedWorld
from tests.worlds import programs

EXPECTED: dict[str, type[WorldError]] = {
    "raise": RankRaised,
    "chain": RankRaised,
    "odd": RankRaised,
    "exit": RankDied,
    "return": Deadlock,
    "loop": TimedOut,
    "_exit": RankDied,
    "segfault": RankDied,
    "kill": RankDied,
}
SIMULATED = ("raise", "chain", "odd", "exit", "return", "loop")
_LOOP_SECONDS = 1.0


@dataclass(frozen=True)
class Usage:
    """What the processes of a soak hold.

    Attributes:
        parent: Resident memory of this process, in KiB.
        others: Memory of zygote and ranks, each page once, in KiB. Without pages of files:
            how those count depends on who else on the machine has loaded them.
        descriptors: Open file descriptors of this process and of the zygote.
    """

    parent: int
    others: int
    descriptors: int


def usage(world: World) -> Usage:
    pids = [zygote_for(("torch",)).pid, *world.pids] if isinstance(world, ProcessWorld) else []
    held = [os.getpid(), *pids[:1]]
    return Usage(
        parent=_kib(os.getpid(), "Rss"),
        others=sum(_kib(pid, "Pss_Anon") + _kib(pid, "Pss_Shmem") for pid in pids),
        descriptors=sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in held),
    )


def _kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise ValueError(f"no {field} for process {pid}")


def soak(world: World, examples: int, settle: int, seed: int) -> tuple[Usage, Usage]:
    """Usage after ``settle`` of ``examples`` examples, and after all of them.

    Raises:
        AssertionError: An example did not end as it should.
    """
    generator = random.Random(seed)
    ways = list(EXPECTED) if world.kind == "processes" else list(SIMULATED)
    timeout = world.timeout  # type: ignore[attr-defined]
    settled = None
    for example in range(examples):
        if example % 10 == 0:
            how = ways[example // 10 % len(ways)]
            who = tuple(sorted(generator.sample(range(world.size), generator.choice([1, 2]))))
            world.timeout = _LOOP_SECONDS if how == "loop" else timeout  # type: ignore[attr-defined]
            error = _failure(world, how, who)
            assert type(error) is EXPECTED[how], f"{how} of {who}: {error}"
            assert [report.rank for report in error.reports] == list(range(world.size))
            world.timeout = timeout  # type: ignore[attr-defined]
        else:
            results = world.run(programs.fail, "raise", ())
            assert results == ["through"] * world.size
        if example + 1 == settle:
            settled = usage(world)
    assert settled is not None
    world.run(programs.my_rank)
    return settled, usage(world)


def _failure(world: World, how: str, who: tuple[int, ...]) -> WorldError:
    try:
        world.run(programs.fail, how, who)
    except WorldError as error:
        return error
    raise AssertionError(f"{how} of {who} did not fail")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--settle", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for world in (SimulatedWorld(8), ProcessWorld(4)):
        start = time.monotonic()
        before, after = soak(world, options.examples, options.settle, options.seed)
        world.close()
        seconds = time.monotonic() - start
        print(f"{world.kind}: {options.examples} examples in {seconds:.0f} s", flush=True)
        for name in ("parent", "others", "descriptors"):
            old, new = getattr(before, name), getattr(after, name)
            print(f"  {name}: {old} -> {new} ({new / max(old, 1) - 1:+.1%})", flush=True)


if __name__ == "__main__":
    main()

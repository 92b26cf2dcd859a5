"""What ranks cost: ``python -m benchmarks.ranks [--preload MODULE] [--repeat N]``.

Prints the medians of a call that does nothing, of the recovery from a failure (from the start
of the call that fails to the end of the next one), and of the start of ranks, beside what it
costs to spawn fresh processes for one example.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fixtures.ranks.api import Rank, World
from fixtures.ranks.errors import WorldError
from fixtures.ranks.forked import ForkedWorld
from fixtures.ranks.simulated import SimulatedWorld
from gate.arguments import positive

SIMULATED_RANKS = 8
FORKED_RANKS = 4


def noop(rank: Rank) -> None:
    """The program that does nothing."""


def raise_on_one(rank: Rank) -> None:
    group = rank.new_group((tuple(range(rank.world_size)),))
    if rank.rank == 1:
        raise ValueError("on purpose")
    group.barrier()


def kill_one(rank: Rank) -> None:
    group = rank.new_group((tuple(range(rank.world_size)),))
    if rank.rank == 1:
        os.kill(os.getpid(), 9)
    group.barrier()


def median_ms(action: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def recover(world: World, program: Callable[[Rank], None]) -> None:
    try:
        world.run(program)
    except WorldError:
        world.run(noop)
    else:
        raise RuntimeError(f"{program.__name__} was meant to fail")


def start(preload: tuple[str, ...]) -> None:
    world = ForkedWorld(FORKED_RANKS, preload)
    world.run(noop)
    world.close()


def spawn_once(preload: tuple[str, ...]) -> None:
    """One example in processes of its own, joined over gloo."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        ranks = [
            context.Process(target=_spawned, args=(rank, f"{directory}/rendezvous", preload))
            for rank in range(FORKED_RANKS)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise RuntimeError("a spawned rank failed")


def _spawned(rank: int, rendezvous: str, preload: tuple[str, ...]) -> None:
    import importlib

    import torch.distributed as dist

    for module in preload:
        importlib.import_module(module)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=FORKED_RANKS
    )
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE")
    parser.add_argument(
        "--repeat", type=positive, default=20, help="failures and starts per median"
    )
    options = parser.parse_args()
    preload = ("torch", *options.preload)
    repeat = options.repeat

    print(f"medians; preloaded: {', '.join(preload)}; {os.cpu_count()} processors", flush=True)
    print(f"load average before: {Path('/proc/loadavg').read_text().split()[0]}", flush=True)
    simulated = SimulatedWorld(SIMULATED_RANKS)
    forked = ForkedWorld(FORKED_RANKS, preload)
    noop_ms = 0.0
    for world in (simulated, forked):
        name = f"{world.kind}, {world.size} ranks"
        world.run(noop)
        noop_ms = median_ms(partial(world.run, noop), 50 * repeat)
        print(f"{name}: call that does nothing {noop_ms:.3f} ms", flush=True)
        raised = median_ms(partial(recover, world, raise_on_one), repeat)
        print(f"{name}: recovery after one rank raised {raised:.1f} ms", flush=True)
    killed = median_ms(lambda: recover(forked, kill_one), repeat)
    print(f"forked, {FORKED_RANKS} ranks: recovery after SIGKILL {killed:.1f} ms")
    forked.close()
    started = median_ms(lambda: start(preload), repeat)
    print(f"forked, {FORKED_RANKS} ranks: start, one call, end {started:.1f} ms", flush=True)
    spawned = median_ms(lambda: spawn_once(preload), 3)
    print(
        f"spawned for one example, {FORKED_RANKS} ranks: {spawned:.0f} ms, "
        f"{spawned / noop_ms:.0f} times a call to ranks that are kept"
    )


if __name__ == "__main__":
    # Ranks import the programs by the name of their module.
    from benchmarks import ranks

    ranks.main()

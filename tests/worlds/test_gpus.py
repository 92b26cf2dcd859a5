"""GPUs are leased to one process at a time; an inventory made up here stands for real ones."""

import itertools
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fixtures.worlds.gpus import GpuLease, SharedGpus, TooFewGpus, visible_gpus
from fixtures.worlds.pool import Worlds
from gate import plugin

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from fixtures.worlds.gpus import GpuLease, TooFewGpus
try:
    lease = GpuLease(int(sys.argv[1]), wait_seconds=float(sys.argv[2]), inventory=sys.argv[3:])
    print(*lease.gpus, flush=True)
except TooFewGpus:
    print("none", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def inventory() -> list[str]:
    """Eight GPUs that no other test has."""
    node = uuid.uuid4()
    return [f"{node}-{index}" for index in range(8)]


@contextmanager
def hold(
    count: int, inventory: list[str], wait_seconds: str = "0"
) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lease until it is ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(count), wait_seconds, *inventory],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does within a minute, which is far more than it takes."""
    for _ in range(6000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_workers_get_disjoint_gpus(inventory: list[str]) -> None:
    """Four workers want 4 of 8 GPUs each: two get theirs, two have to do without."""
    with ExitStack() as stack:
        workers = [stack.enter_context(hold(4, inventory)) for _ in range(4)]
        got = [worker.stdout.readline().split() for worker in workers if worker.stdout]
        assert sorted(len(gpus) for gpus in got) == [1, 1, 4, 4]
        assert sorted(gpu for gpus in got if len(gpus) == 4 for gpu in gpus) == sorted(inventory)
        for worker, gpus in zip(workers, got, strict=True):
            if len(gpus) == 4:
                worker.kill()  # The lease ends with the process.
                worker.wait()
                # Held until the end: whichever worker came first, only these four are free.
                lease = stack.enter_context(GpuLease(4, inventory=inventory))
                assert list(lease.gpus) == gpus


def test_a_lease_ends(inventory: list[str]) -> None:
    first = GpuLease(5, inventory=inventory)
    assert list(first.gpus) == inventory[:5]
    with GpuLease(3, inventory=inventory) as second:
        assert list(second.gpus) == inventory[5:]
        with pytest.raises(TooFewGpus, match=r"1 GPUs are needed, but of .* only \[\] are free"):
            GpuLease(1, inventory=inventory)
    first.release()
    first.release()
    GpuLease(8, inventory=inventory).release()


def test_what_could_not_be_had_in_full_is_not_held(inventory: list[str]) -> None:
    first = GpuLease(5, inventory=inventory)
    with pytest.raises(TooFewGpus):
        GpuLease(4, inventory=inventory)
    GpuLease(3, inventory=inventory).release()
    first.release()


def test_a_lease_can_be_waited_for(inventory: list[str]) -> None:
    with hold(8, inventory) as worker:
        assert worker.stdout
        assert worker.stdin
        assert worker.stdout.readline().split() == inventory
        worker.stdin.close()  # Now it ends.
        GpuLease(8, inventory=inventory, wait_seconds=60).release()


TAKES_TURNS = """
import sys, time
from fixtures.worlds.gpus import SharedGpus
gpus = SharedGpus(sys.argv[3:], wait_seconds=60, keep_seconds=0.0)
for test in range(int(sys.argv[2])):
    got = gpus.take(int(sys.argv[1]))
    started = time.monotonic()
    time.sleep(0.05)
    print(started, time.monotonic(), *got, flush=True)
    if gpus.wanted:
        gpus.release()
"""


def test_any_number_of_workers_take_turns(inventory: list[str]) -> None:
    """Six workers with four GPUs for each test: two work at a time, and every test is run."""
    command = [sys.executable, "-c", TAKES_TURNS, "4", "5", *inventory]
    workers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(6)]
    outputs = [worker.communicate(timeout=120)[0].decode().splitlines() for worker in workers]
    assert [len(lines) for lines in outputs] == [5] * 6
    spans = [line.split() for lines in outputs for line in lines]
    for gpu in inventory:
        times = sorted((float(start), float(end)) for start, end, *gpus in spans if gpu in gpus)
        for (_, before), (after, _) in itertools.pairwise(times):
            assert before <= after, f"two workers had {gpu} at the same time"


def test_who_waits_comes_before_who_gave_way(inventory: list[str]) -> None:
    mine = SharedGpus(inventory, wait_seconds=60, keep_seconds=0.0)
    mine.take(8)
    with hold(3, inventory, "60") as other:
        assert other.stdout
        assert comes_true(lambda: mine.wanted)
        mine.release()
        with pytest.raises(TooFewGpus, match=r"only .* are free"):
            GpuLease(8, inventory=inventory)
        assert other.stdout.readline().split() == inventory[:3]
    assert mine.take(8) == tuple(inventory)
    mine.release()


def test_what_nobody_waits_for_is_kept(inventory: list[str]) -> None:
    gpus = SharedGpus(inventory, keep_seconds=0.0)
    assert gpus.take(2) == gpus.take(2) == tuple(inventory[:2])
    assert not gpus.wanted
    assert gpus.take(1) == tuple(inventory[:1])
    assert gpus.held == 2
    gpus.release()
    assert gpus.held == 0
    assert not gpus.wanted


def test_worlds_give_their_gpus_back_to_who_waits(inventory: list[str]) -> None:
    gpus = SharedGpus(inventory, keep_seconds=0.0)
    closed: list[int] = []

    class FakeWorld:
        def __init__(self, size: int) -> None:
            self.size, self.gpus = size, gpus.take(size)

        def rest(self) -> None: ...

        def close(self) -> None:
            closed.append(self.size)

    worlds = Worlds(FakeWorld, gpus=gpus)  # type: ignore[arg-type]
    worlds.get(2)
    worlds.get(4)
    assert closed == [2], "the smaller world stayed on GPUs that others may have by now"
    worlds.give_way()
    assert gpus.held == 4, "GPUs were given back that nobody waits for"
    with hold(8, inventory, "60") as other:
        assert other.stdout
        assert comes_true(lambda: gpus.wanted)
        worlds.give_way()
        assert closed == [2, 4]
        assert other.stdout.readline().split() == inventory


@pytest.mark.parametrize(("layout", "workers"), [(None, 1), ("tp=4,dcp=2", 2), ("tp=16,dcp=2", 1)])
def test_as_many_workers_start_as_gpus_can_serve(
    monkeypatch: pytest.MonkeyPatch, layout: str | None, workers: int
) -> None:
    monkeypatch.setattr(plugin, "visible_gpus", lambda: tuple("01234567"))
    options = {"world": "processes", "device": "cuda", "layout": layout}
    config = SimpleNamespace(getoption=options.get)
    assert plugin.pytest_xdist_auto_num_workers(config) == workers  # type: ignore[arg-type]
    options["device"] = "cpu"
    assert plugin.pytest_xdist_auto_num_workers(config) is None  # type: ignore[arg-type]


def test_too_few() -> None:
    with pytest.raises(TooFewGpus, match="4 GPUs are needed, but only 2 are visible"):
        GpuLease(4, inventory=["0", "1"])
    with pytest.raises(ValueError, match="count is 0"):
        GpuLease(0, inventory=["0"])


@pytest.mark.parametrize(
    ("variable", "count", "expected"),
    [
        (None, 2, ("0", "1")),
        ("3, 5", 2, ("3", "5")),
        ("GPU-a,GPU-b,GPU-c", 2, ("GPU-a", "GPU-b")),
        ("", 0, ()),
        ("0,1", 0, ()),
    ],
)
def test_the_visible_devices_are_respected(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, count: int, expected: tuple[str, ...]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    if variable is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == expected


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs")
def test_nccl_over_leased_gpus() -> None:
    from fixtures.worlds.processes import ProcessWorld
    from tests.worlds import programs

    with GpuLease(2, wait_seconds=600) as lease:
        world = ProcessWorld(2, gpus=lease.gpus, timeout=60)
        assert world.run(programs.on_the_device) == [[0.0, 1.0]] * 2
        world.close()

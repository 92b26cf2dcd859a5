"""GPUs are leased to one process at a time; an inventory made up here stands for real ones."""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch

from fixtures.worlds.gpus import GpuLease, TooFewGpus, visible_gpus

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys
from fixtures.worlds.gpus import GpuLease, TooFewGpus
try:
    lease = GpuLease(int(sys.argv[1]), inventory=sys.argv[2:])
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
def hold(count: int, inventory: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lease until it is ended."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(count), *inventory],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


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

"""How workers share GPUs; an inventory made up here stands for real ones."""

import itertools
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fixtures.ranks.errors import CannotStart
from fixtures.ranks.forked import ForkedWorld
from fixtures.ranks.gpus import GpuShare, visible_gpus
from fixtures.ranks.pool import Worlds
from gate import layouts, plugin
from tests.ranks import programs

ROOT = Path(__file__).parents[2]
WORKER = """
import sys, time
from fixtures.ranks.gpus import GpuShare
share = GpuShare(4, inventory=sys.argv[2:], worker=int(sys.argv[1]))
gpus = share.take(4)
began = time.monotonic()
time.sleep(0.2)
print(began, time.monotonic(), *gpus, flush=True)
if sys.argv[1] == "0":
    import os
    os.abort()
share.release()
"""


@pytest.fixture
def inventory() -> list[str]:
    """Eight GPUs that no other test has."""
    node = uuid.uuid4()
    return [f"{node}-{index}" for index in range(8)]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def test_workers_have_gpus_of_their_own(inventory: list[str]) -> None:
    shares = [GpuShare(2, inventory=inventory, worker=worker) for worker in range(4)]
    taken = [gpu for share in shares for gpu in share.take(2)]
    assert taken == inventory
    assert shares[0].take(1) == tuple(inventory[:1])
    for share in shares:
        share.release()
        share.release()


def test_more_workers_than_sets_take_turns(inventory: list[str]) -> None:
    """Six workers of four GPUs each: two work at a time; one is killed in its turn."""
    command = [sys.executable, "-c", WORKER]
    workers = [
        subprocess.Popen([*command, str(worker), *inventory], cwd=ROOT, stdout=subprocess.PIPE)
        for worker in range(6)
    ]
    spans = [worker.communicate(timeout=120)[0].decode().split() for worker in workers]
    for gpu in inventory:
        times = sorted((float(start), float(end)) for start, end, *gpus in spans if gpu in gpus)
        assert len(times) == 3
        for (_, before), (after, _) in itertools.pairwise(times):
            assert before <= after, f"two workers had {gpu} at the same time"


def test_too_few(inventory: list[str]) -> None:
    share = GpuShare(16, inventory=inventory, worker=3)
    assert share.gpus == tuple(inventory)
    with pytest.raises(CannotStart, match="16 ranks need 16 GPUs, but this worker has"):
        share.take(16)
    with pytest.raises(CannotStart, match="1 ranks need 1 GPUs"):
        GpuShare(inventory=[], worker=0).take(1)


def test_a_pool_gives_its_gpus_back(inventory: list[str]) -> None:
    first, second = (GpuShare(8, inventory=inventory, worker=worker) for worker in range(2))
    worlds = Worlds(lambda size: ForkedWorld(len(first.take(size))), gpus=first)
    assert worlds.get(1).run(programs.my_rank) == [(0, 1)]
    assert first.turn.is_locked
    worlds.close()
    assert not first.turn.is_locked
    assert len(second.take(8)) == 8
    second.release()


@pytest.mark.parametrize(("layout", "workers"), [(None, 1), ("tp=4,dcp=2", 2), ("tp=16,dcp=2", 1)])
def test_as_many_workers_start_as_gpus_can_serve(
    monkeypatch: pytest.MonkeyPatch, layout: str | None, workers: int
) -> None:
    monkeypatch.setattr(plugin, "visible_gpus", lambda: tuple("01234567"))
    options = {"world": "forked", "device": "cuda", "layout": layout}
    config = SimpleNamespace(getoption=options.get)
    assert plugin.pytest_xdist_auto_num_workers(config) == workers  # type: ignore[arg-type]
    options["device"] = "cpu"
    assert plugin.pytest_xdist_auto_num_workers(config) is None  # type: ignore[arg-type]


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


def test_gpus_must_be_as_many_as_ranks() -> None:
    with pytest.raises(ValueError, match="2 ranks need 2 GPUs"):
        ForkedWorld(2, gpus=["0"])


def test_ranks_share_one_gpu_or_have_one_each() -> None:
    with pytest.raises(ValueError, match="3 ranks need 1 GPUs"):
        ForkedWorld(3, gpus=["0", "1"], shared=True)


@pytest.mark.parametrize(
    ("gpus", "layout", "largest", "reason"),
    [
        (1, None, 4, "at most 4 ranks, on one GPU that they share, over gloo"),
        (2, None, 4, "up to 2, and more on one GPU that they share, over gloo"),
        (8, None, 4, "at most 4 ranks, on a GPU each, over NCCL"),
        (1, "tp=8,dcp=4", 8, "--layout tp=8,dcp=4"),
    ],
)
def test_what_shares_gpus_covers_more_ranks_than_there_are(
    monkeypatch: pytest.MonkeyPatch, gpus: int, layout: str | None, largest: int, reason: str
) -> None:
    monkeypatch.setattr(layouts, "visible_gpus", lambda: tuple("01234567"[:gpus]))
    selection = layouts.covered("forked", "cuda", layout, shares_gpus=True)
    assert reason in selection.reason
    assert selection.sizes is not None
    assert max(selection.sizes) == largest


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs")
def test_nccl() -> None:
    share = GpuShare(2)
    world = ForkedWorld(2, gpus=share.take(2), timeout=60)
    assert world.run(programs.on_the_device) == [[0.0, 1.0]] * 2
    world.close()
    share.release()

"""Failures of a launched world of two ranks on GPUs, over NCCL, which wakes nobody by itself."""

import os
import time

import pytest

from fixtures.ranks.errors import Deadlock, RankRaised
from fixtures.ranks.launched import launched_world
from tests.ranks import programs

TIMEOUT = float(os.environ["RANKS_TIMEOUT"])


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("how", ["raise", "late raise"])
def test_raising(how: str, who: int) -> None:
    world = launched_world(2)
    began = time.monotonic()
    with pytest.raises(RankRaised, match=f"rank {who} raised ValueError: rank {who} will not"):
        world.run(programs.fail_on_gpus, how, who)
    assert world.run(programs.fail_on_gpus, "", -1) == [16.0] * 2
    assert time.monotonic() - began < TIMEOUT, "a rank has waited in vain"


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("how", ["return", "late return"])
def test_waiting_in_vain(how: str, who: int) -> None:
    world = launched_world(2)
    with pytest.raises(Deadlock, match=r"waited in vain, at .*programs\.py"):
        world.run(programs.fail_on_gpus, how, who)
    assert world.run(programs.fail_on_gpus, "", -1) == [16.0] * 2

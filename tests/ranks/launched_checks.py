"""What rank 0 of a launched world checks; test_launched.py has torchrun start it."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.ranks.errors import RankDied, RankRaised
from fixtures.ranks.launched import LaunchedWorld, launched_world
from tests.ranks import programs
from tests.ranks.test_calls import HALVES, check_collectives


@pytest.fixture
def world() -> Iterator[LaunchedWorld]:
    """The world; nobody may have waited in vain until the end of the time."""
    began = time.monotonic()
    yield launched_world(int(os.environ["WORLD_SIZE"]))
    assert time.monotonic() - began < float(os.environ["RANKS_TIMEOUT"])


def test_it_spans_the_agents(world: LaunchedWorld) -> None:
    assert world.run(programs.my_rank) == [(rank, 4) for rank in range(4)]
    assert world.run(programs.environment, "GROUP_RANK") == ["0", "0", "1", "1"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_collectives(world: LaunchedWorld, dtype: torch.dtype) -> None:
    check_collectives(world, HALVES, dtype)


def test_hypothesis_shrinks_on_rank_0(world: LaunchedWorld) -> None:
    @settings(database=None, derandomize=True, deadline=None, max_examples=50)
    @given(st.integers(0, 999))
    def find(value: int) -> None:
        world.run(programs.threshold, value, 2)

    with pytest.raises(RankRaised, match=re.escape("rank 2 raised ValueError: 100 is too large")):
        find()
    check_collectives(world, HALVES, torch.float32)


@pytest.mark.parametrize("who", [(0,), (3,), (1, 2)])
def test_raising(world: LaunchedWorld, who: tuple[int, ...]) -> None:
    with pytest.raises(RankRaised) as caught:
        world.run(programs.fail, "raise", who=who)
    assert {rank: type(error) for rank, error in caught.value.exceptions.items()} == dict.fromkeys(
        who, ValueError
    )
    assert [report.rank for report in caught.value.reports] == [0, 1, 2, 3]
    check_collectives(world, HALVES, torch.float32)


@pytest.mark.parametrize("who", [0, 3])
def test_exceptions_that_are_no_exception(world: LaunchedWorld, who: int) -> None:
    with pytest.raises(pytest.skip.Exception, match="no such thing here"):
        world.run(programs.fail, "skip", who=(who,))
    with pytest.raises(RankDied, match=f"rank {who}: exited with 3"):
        world.run(programs.fail, "exit", who=(who,))
    check_collectives(world, HALVES, torch.float32)


@pytest.mark.parametrize("who", [0, 3])
def test_a_result_that_cannot_be_sent(world: LaunchedWorld, who: int) -> None:
    with pytest.raises(RankRaised, match=f"rank {who} raised .*pickle"):
        world.run(programs.fail, "return what cannot be pickled", who=(who,))
    check_collectives(world, HALVES, torch.float32)


def test_what_cannot_be_sent(world: LaunchedWorld) -> None:
    with pytest.raises(RankRaised, match="cannot be sent to another node"):
        world.run(programs.echo, Path())
    check_collectives(world, HALVES, torch.float32)
    with pytest.raises(ValueError, match="torchrun launched 4"):
        launched_world(3)

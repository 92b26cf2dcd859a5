"""Failures of a launched world that only the end of a call's time shows."""

import pytest
import torch

from fixtures.ranks.errors import Deadlock, TimedOut
from fixtures.ranks.launched import launched_size, launched_world
from tests.ranks import programs
from tests.ranks.test_calls import HALVES, check_collectives


@pytest.mark.parametrize(
    ("how", "kind", "who"),
    [("return", Deadlock, (0,)), ("return", Deadlock, (3,)), ("loop", TimedOut, (3,))],
)
def test_hanging(how: str, kind: type[Exception], who: tuple[int, ...]) -> None:
    world = launched_world(launched_size())
    with pytest.raises(kind):
        world.run(programs.fail, how, who=who)
    check_collectives(world, HALVES, torch.float32)


def test_waiting_in_a_smaller_group() -> None:
    world = launched_world(launched_size())
    with pytest.raises(Deadlock, match="rank 1: waited in vain"):
        world.run(programs.waits_in_a_pair)
    check_collectives(world, HALVES, torch.float32)

"""What rank 0 of a launched world sees of a rank that does not come back from a call."""

import pytest

from fixtures.ranks.errors import CannotStart, TimedOut
from fixtures.ranks.launched import launched_size, launched_world
from tests.ranks import programs


def test_it() -> None:
    world = launched_world(launched_size())
    with pytest.raises(TimedOut, match="rank 1: did not come back"):
        world.run(programs.fail, "loop in C, deaf")
    with pytest.raises(CannotStart, match="rank 1 did not come back"):
        world.run(programs.my_rank)

"""A short soak; the long one is ``python -m tests.ranks.soak``."""

import pytest

from fixtures.ranks.forked import ForkedWorld
from fixtures.ranks.simulated import SimulatedWorld
from tests.ranks.soak import soak


@pytest.mark.parametrize("make", [SimulatedWorld, ForkedWorld])
def test_nothing_grows(make: type[SimulatedWorld] | type[ForkedWorld]) -> None:
    world = make(4)
    before, after = soak(world, examples=280, settle=140, seed=0)
    world.close()
    assert after.descriptors == before.descriptors
    assert after.parent <= 1.05 * before.parent
    assert after.others <= 1.05 * before.others

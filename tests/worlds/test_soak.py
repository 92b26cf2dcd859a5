"""A short soak; the long one is ``python -m tests.worlds.soak``."""

import pytest

from fixtures.worlds.processes import ProcessWorld
from fixtures.worlds.simulated import SimulatedWorld
from tests.worlds.soak import soak


@pytest.mark.parametrize("make", [SimulatedWorld, ProcessWorld])
def test_nothing_grows(make: type[SimulatedWorld] | type[ProcessWorld]) -> None:
    world = make(4)
    before, after = soak(world, examples=280, settle=140, seed=0)
    world.close()
    assert after.descriptors == before.descriptors
    assert after.parent <= 1.05 * before.parent
    assert after.others <= 1.05 * before.others

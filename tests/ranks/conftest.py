"""Worlds for the tests, kept for the session."""

from collections.abc import Callable, Iterator

import pytest

from fixtures.ranks.api import World
from fixtures.ranks.forked import ForkedWorld
from fixtures.ranks.pool import Worlds
from fixtures.ranks.simulated import SimulatedWorld

Get = Callable[[int], World]


@pytest.fixture(scope="session")
def simulated() -> Iterator[Get]:
    worlds = Worlds(lambda size: SimulatedWorld(size, timeout=60))
    yield worlds.get
    worlds.close()


@pytest.fixture(scope="session")
def forked() -> Iterator[Get]:
    worlds = Worlds(lambda size: ForkedWorld(size, timeout=60))
    yield worlds.get
    worlds.close()


@pytest.fixture(params=["simulated", "forked"])
def worlds(request: pytest.FixtureRequest) -> Get:
    return request.getfixturevalue(request.param)

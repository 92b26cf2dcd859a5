"""Worlds for the tests, kept for the session."""

from collections.abc import Callable, Iterator

import pytest

from fixtures.worlds.api import World
from fixtures.worlds.pool import Worlds
from fixtures.worlds.processes import ProcessWorld
from fixtures.worlds.simulated import SimulatedWorld

Get = Callable[[int], World]


@pytest.fixture(scope="session")
def simulated() -> Iterator[Get]:
    worlds = Worlds(lambda size: SimulatedWorld(size, timeout=30))
    yield worlds.get
    worlds.close()


@pytest.fixture(scope="session")
def processes() -> Iterator[Get]:
    worlds = Worlds(lambda size: ProcessWorld(size, timeout=30))
    yield worlds.get
    worlds.close()


@pytest.fixture(params=["simulated", "processes"])
def worlds(request: pytest.FixtureRequest) -> Get:
    return request.getfixturevalue(request.param)

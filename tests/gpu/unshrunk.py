"""A pytest plugin: failures are told as they are found, and not made smaller first."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    settings.register_profile("unshrunk", settings(), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("unshrunk")

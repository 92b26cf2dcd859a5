"""Makes every pytest run from the repository root a run of the gate."""

from importlib.util import find_spec
from typing import NoReturn

import pytest

# The dependencies in pyproject.toml, by the names of their modules.
NEEDED = (
    "filelock",
    "greenlet",
    "hypothesis",
    "jinja2",
    "numpy",
    "packaging",
    "rich",
    "tblib",
    "torch",
    "xdist",
)

if missing := [name for name in NEEDED if find_spec(name) is None]:

    def pytest_addoption() -> NoReturn:
        """End the run in a sentence, before an option of the gate is not understood."""
        raise pytest.UsageError(
            f"{', '.join(missing)} cannot be imported: install what is needed, with `pip install "
            f"torch==2.13.0 -e '.[dev]'` in the root of the repository"
        )

else:
    import torch

    pytest_plugins = ("gate.plugin", "pytester")

    # Workers and ranks share the cores already, and products this small only wait for threads.
    torch.set_num_threads(1)

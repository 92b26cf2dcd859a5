"""Repeats one example: Hypothesis' decorator as an option of the command line."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import is_hypothesis_test


def option_of(decorator: str) -> str:
    """``VERSION:BLOB`` for ``@reproduce_failure('VERSION', b'BLOB')``."""
    version, blob = ast.literal_eval(decorator.removeprefix("@reproduce_failure"))
    return f"{version}:{blob.decode('ascii')}"


def pin(items: Sequence[pytest.Item], option: str) -> None:
    """Make the one selected property run the example that ``option`` encodes.

    Raises:
        pytest.UsageError: Another Hypothesis encoded it, or not one property is selected.
    """
    version, _, blob = option.partition(":")
    if version != hypothesis.__version__:
        raise pytest.UsageError(
            f"--reproduce is of Hypothesis {version}, but {hypothesis.__version__} is "
            f"installed: install that version to repeat the example"
        )
    if len(items) != 1 or not is_hypothesis_test(items[0].function):  # type: ignore[attr-defined]
        raise pytest.UsageError(
            f"--reproduce repeats one example of one property, but {len(items)} tests are "
            f"selected: name the property, as the line to repeat it does"
        )
    hypothesis.reproduce_failure(version, blob.encode("ascii"))(items[0].function)  # type: ignore[attr-defined]

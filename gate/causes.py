"""Where in a subject's code a failure began."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path


def place_of(error: BaseException, package: str) -> str:
    """``IndexError in _load at vllm/layers/linear.py:588``, the same for failures of one cause.

    Args:
        error: What a test raised.
        package: The subject's, whose innermost line counts.

    Returns:
        Empty where no exception passed through the package: it computed something wrong.
    """
    for raised in _causes(error):
        for frame, line in reversed(list(traceback.walk_tb(raised.__traceback__))):
            if frame.f_globals.get("__name__", "").partition(".")[0] == package:
                code = frame.f_code
                parts = Path(code.co_filename).parts
                start = len(parts) - 1 - parts[::-1].index(package) if package in parts else -1
                where = "/".join(parts[start:])
                return f"{type(raised).__name__} in {code.co_name} at {where}:{line}"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """What ``error`` was raised from, the innermost first, and ``error`` itself."""
    if error.__cause__ is not None:
        yield from _causes(error.__cause__)
    yield error

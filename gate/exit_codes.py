"""Exit codes, of a pytest run over the properties and of ``python -m gate`` alike."""

from __future__ import annotations

from enum import IntEnum

import pytest


class ExitCode(IntEnum):
    """What an exit code says; up to 5, what pytest says by it.

    Attributes:
        PASSED: Every clause passes, rests on a stand-in, is known to fail, or does not apply.
        FAILED: A failure that is not listed as known, or a listed one that fails no more.
        INTERRUPTED: By the user; or modules of properties cannot be imported.
        INTERNAL_ERROR: Of pytest or a plugin.
        USAGE: The question is wrong; nothing was judged.
        NO_TESTS: Nothing is selected.
        NOT_JUDGED: Something could not be judged, and what could did not fail.
    """

    PASSED = pytest.ExitCode.OK
    FAILED = pytest.ExitCode.TESTS_FAILED
    INTERRUPTED = pytest.ExitCode.INTERRUPTED
    INTERNAL_ERROR = pytest.ExitCode.INTERNAL_ERROR
    USAGE = pytest.ExitCode.USAGE_ERROR
    NO_TESTS = pytest.ExitCode.NO_TESTS_COLLECTED
    NOT_JUDGED = 6

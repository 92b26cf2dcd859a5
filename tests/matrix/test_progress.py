"""The line on the progress: rewritten on a terminal, and not there anywhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.matrix.progress import in_words

ROOT = Path(__file__).parents[2]
COMMAND = (
    *(sys.executable, "-m", "pytest", "-p", "fixtures.matrix.progress", "-p", "no:cacheprovider"),
    *("properties/test_kvs.py", "-k", "local_lengths or lengths", "--hypothesis-profile", "dev"),
)


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [
        (1, 4, 10.0, "1/4 properties, last GRP-3, about 30 s left"),
        (2, 60, 20.0, "2/60 properties, last GRP-3, about 10 min left"),
        (4, 4, 10.0, "4/4 properties, last GRP-3"),
    ],
)
def test_the_line_says_how_far_it_is(done: int, total: int, seconds: float, words: str) -> None:
    assert in_words(done, total, "GRP-3", seconds) == words


def test_the_line_is_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs)
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:  # the end of a terminal's output
        pass
    os.close(ours)
    assert process.wait() == 0
    assert b" properties, last KVS-" in output


def test_nothing_is_said_to_what_is_no_terminal() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0
    assert b" properties, last " not in done.stdout

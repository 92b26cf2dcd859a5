"""The line on the progress: rewritten on a terminal, and not there anywhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gate.judge.progress import in_words

ROOT = Path(__file__).parents[3]
COMMAND = (
    *(sys.executable, "-m", "pytest", "-p", "gate.judge.progress", "-p", "no:cacheprovider"),
    *("properties/test_kvs.py", "-k", "local_lengths or lengths", "--hypothesis-profile", "dev"),
)


@pytest.mark.parametrize(
    ("done", "total", "seconds", "words"),
    [
        (1, 4, 10.0, "1/4 properties, last GRP-3, about 30 s left, longer for each failure"),
        (2, 60, 20.0, "2/60 properties, last GRP-3, about 10 min left, longer for each failure"),
        (4, 4, 10.0, "4/4 properties, last GRP-3"),
    ],
)
def test_the_line_says_how_far_it_is(done: int, total: int, seconds: float, words: str) -> None:
    assert in_words(done, total, "GRP-3", seconds) == words


def _on_a_terminal(command: Sequence[str], folder: Path) -> tuple[int, bytes]:
    """Exit code and output."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 4096):
            output += chunk
    except OSError:  # the end of a terminal's output
        pass
    os.close(ours)
    return process.wait(), output


def test_the_line_is_on_a_terminal() -> None:
    code, output = _on_a_terminal(COMMAND, ROOT)
    assert code == 0
    assert b" properties, last KVS-" in output


def test_a_failure_shows_at_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("gate.plugin",)\n', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (tmp_path / "test_properties.py").write_text(
        "from properties.contract import clause\n\n"
        "@clause('LIN-1')\ndef test_fails():\n    assert False, 'shard 1 is wrong'\n\n"
        "@clause('LIN-2')\ndef test_passes():\n    pass\n",
        "utf-8",
    )
    command = [
        *(sys.executable, "-m", "pytest", "-p", "gate.judge.progress"),
        *("-p", "no:cacheprovider", "."),
    ]
    code, output = _on_a_terminal(command, tmp_path)
    assert code == 1
    failure = b"\rfail: test_properties.py::test_fails: AssertionError: shard 1 is wrong"
    assert failure in output
    assert output.index(failure) < output.index(b"2/2 properties")


def test_nothing_is_said_to_what_is_no_terminal() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0
    assert b" properties, last " not in done.stdout

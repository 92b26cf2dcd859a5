"""A line that starts this Python again works elsewhere, where it can."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gate.paste import run_with


@pytest.mark.parametrize(
    ("python", "path", "line"),
    [
        ("{home}/gate/.tox/judge/bin/python", "", ".tox/judge/bin/python"),
        (
            "{home}/gate/.venv/bin/python",
            "{home}/gate/.tox/vllm/vllm-0.32.0:{home}/my vllm:",
            "PYTHONPATH='.tox/vllm/vllm-0.32.0:../my vllm' .venv/bin/python",
        ),
        ("/usr/bin/python3", "/opt/vllm", "PYTHONPATH=/opt/vllm /usr/bin/python3"),
    ],
)
def test_paths_are_relative_to_the_root(
    python: str, path: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python.format(home=tmp_path))
    monkeypatch.setenv("PYTHONPATH", path.format(home=tmp_path))
    assert run_with(tmp_path / "gate") == line

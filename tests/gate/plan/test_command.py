"""The command: a table and an answer, or a sentence and the exit code of wrong usage."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from gate.__main__ import main as gate
from gate.exit_codes import ExitCode
from tests.gate.plan.synthetic import MACHINE, part_rows, write


def main(arguments: list[str]) -> int:
    """The exit code of ``python -m gate plan``."""
    with pytest.raises(SystemExit) as ended:
        sys.exit(gate(["plan", *arguments]))
    return int(ended.value.code or 0)


@pytest.fixture
def machine(tmp_path: Path) -> str:
    path = tmp_path / "machine.json"
    MACHINE.save(path)
    return str(path)


def test_a_plan(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["GLM-5", "--tp", "8", "--dcp", "4", "--batch", "48", "--step-ms", "20"]
    assert main([*asked, "--machine", machine]) == 0
    said = capsys.readouterr().out
    assert "8 heads a rank, 32 a group" in said
    assert "switch it on at batch 48" in said
    assert "of a decode step of 20 ms" in said
    # 78 layers of the 31,457,280 bytes of MEM-2.
    assert "2.3 GiB" in said


def test_a_plan_from_measured_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write(tmp_path / "rows.jsonl", part_rows())
    assert main(["Kimi-K3", "--tp", "8", "--dcp", "8", "--machine", str(rows)]) == 0
    said = capsys.readouterr().out
    assert "one layer" in said
    assert "an error nobody measured" in said


def test_a_calibration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write(tmp_path / "rows.jsonl", part_rows())
    saved = tmp_path / "machine.json"
    assert main(["--calibrate", str(rows), "--save", str(saved)]) == 0
    assert "projection-bf16" in capsys.readouterr().out
    assert json.loads(saved.read_text("utf-8"))["rates"]["gather"]["fixed_us"] == 9.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Llama", "--tp", "8", "--dcp", "2"], "no model that the planner knows"),
        (["DeepSeek-R1", "--tp", "8", "--dcp", "5"], "does not divide tp 8"),
        (["DeepSeek-R1", "--tp", "8", "--dcp", "2", "--machine", "abacus"], "no constants of"),
        (["--calibrate", "nothing.jsonl"], "nothing.jsonl cannot be read"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_a_direct_gather_that_nobody_measured(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["DeepSeek-R1", "--tp", "8", "--dcp", "2", "--machine", machine, "--gather", "direct"]
    assert main(asked) == ExitCode.USAGE
    assert "give --link-latency and --link-bandwidth" in capsys.readouterr().err
    assert main([*asked, "--link-latency", "4", "--link-bandwidth", "300"]) == 0


@pytest.mark.parametrize("number", ["0", "-1", "inf", "fast"])
def test_a_link_must_have_a_number(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["DeepSeek-R1", "--tp", "8", "--dcp", "2", f"--link-latency={number}"]
    assert main(asked) == ExitCode.USAGE
    assert "must be a number above 0" in capsys.readouterr().err


def test_a_plot(machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ratio.svg"
    asked = ["DeepSeek-R1", "--tp", "8", "--dcp", "2", "--machine", machine, "--plot", str(path)]
    if importlib.util.find_spec("matplotlib") is None:
        assert main(asked) == ExitCode.USAGE
        assert "pip install matplotlib" in capsys.readouterr().err
        return
    assert main(asked) == 0
    assert "dcp 8" in path.read_text("utf-8")

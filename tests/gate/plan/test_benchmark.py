"""The benchmark's whole path on a CPU, and the planner on the rows that it writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gate.__main__ import main
from gate.plan.rows import read

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("ranks", [1, 2])
def test_rows_of_a_run_calibrate_the_planner(
    ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    benchmark = ["-m", "benchmarks.decode_step", "--device", "cpu", "--replays", "1"]
    subprocess.run(
        [sys.executable, *(launcher if ranks > 1 else []), *benchmark, "--out", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    rows = tmp_path / f"decode_step-cpu-x{ranks}.jsonl"
    measured = read([rows])
    assert measured.meta["world"] == ranks
    spans = {(pair.span, pair.path) for pair in measured.pairs}
    whole = {(span, path) for span in ("query", "step") for path in ("ops", "impl")}
    assert spans == (whole if ranks > 1 else {("compute", "ops"), ("compute", "impl")})
    assert main(["plan", "--calibrate", str(rows)]) == 0
    assert f"{ranks} x CPU" in capsys.readouterr().out

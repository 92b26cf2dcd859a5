"""Constants come back from the rows that they made, and committed constants from theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.commands.plan import MACHINES
from gate.plan.calibration import calibrate
from gate.plan.errors import PlanError
from gate.plan.machine import Machine
from gate.plan.rows import read
from tests.gate.plan.synthetic import RATES, part_rows, write


def test_times_come_back_from_rows_that_constants_made(tmp_path: Path) -> None:
    measured = read([write(tmp_path / "rows.jsonl", part_rows())])
    machine = calibrate(measured)
    assert machine.rates.keys() == RATES.keys()
    for part in measured.parts:
        time = machine.rates[part.work.kind].microseconds(part.work)
        assert time == pytest.approx(part.us, rel=0.02), part


def test_a_negative_cost_is_none(tmp_path: Path) -> None:
    rows = [row for row in part_rows() if row["op"] == "assembly" and row["dt"] == "bf16"]
    for row in rows:
        row["us"] = [3.0, 3.0 - 1e-3 * row["b"], 3.0]
    rate = calibrate(read([write(tmp_path / "rows.jsonl", rows)])).rates["assembly-bf16"]
    assert rate.activations_tbs == 0
    assert 2.4 < rate.fixed_us < 3.0


def test_constants_survive_a_file(tmp_path: Path) -> None:
    machine = calibrate(read([write(tmp_path / "rows.jsonl", part_rows())]))
    machine.save(tmp_path / "machine.json")
    loaded = Machine.load(tmp_path / "machine.json")
    assert (loaded.rates, loaded.error, loaded.name) == (
        machine.rates,
        machine.error,
        machine.name,
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "is no measured row"),
        ('{"k": "part", "op": "nothing", "b": 1, "n": 1, "dims": [1, 1, 1, 1]}', "'nothing'"),
        ('{"k": "pair"}', "is no measured row"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"k": "meta"}\n' + line + "\n", "utf-8")
    with pytest.raises(PlanError, match=r"rows\.jsonl:2") as told:
        read([path])
    assert said in str(told.value)


def test_rows_without_parts_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [{"k": "meta"}])
    with pytest.raises(PlanError, match="nothing to calibrate on"):
        calibrate(read([path]))


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
def test_known_constants_can_be_read_and_say_how_far_they_are_off(path: Path) -> None:
    known = Machine.load(path)
    assert known.error is not None
    assert {"projection-bf16", "absorption", "assembly-bf16"} <= known.rates.keys()

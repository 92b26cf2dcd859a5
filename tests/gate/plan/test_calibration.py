"""Constants come back from the rows that they made, and committed constants from theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gate.commands.plan import MACHINES
from gate.plan.calibration import UNDECIDED, calibrate, check
from gate.plan.errors import PlanError
from gate.plan.machine import Machine, Rate
from gate.plan.rows import read
from tests.gate.plan.synthetic import RATES, part_rows, write

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
COMMITTED = sorted(RESULTS.glob("decode_step-cuda-*.jsonl"))
# What the planner promises on ratios that its constants were not taken from.
PROMISED = 0.15


def test_constants_come_back_from_rows_that_they_made(tmp_path: Path) -> None:
    machine = calibrate(read([write(tmp_path / "rows.jsonl", part_rows())]))
    assert machine.rates.keys() == RATES.keys()
    for kind, known in RATES.items():
        found = machine.rates[kind]
        for name in Rate.__slots__:
            expected = getattr(known, name)
            assert getattr(found, name) == pytest.approx(expected, rel=0.01, abs=0.01), (kind, name)


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


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_every_committed_ratio_is_predicted(path: Path) -> None:
    measured = read([path])
    checks = check(calibrate(measured), measured.pairs)
    assert checks
    far = [one for one in checks if abs(one.deviation) > PROMISED]
    assert not far, far
    wrong = [one for one in checks if not one.answer_is_right]
    assert not wrong, (UNDECIDED, wrong)


@pytest.mark.parametrize("path", sorted(MACHINES.glob("*.json")), ids=lambda path: path.stem)
def test_committed_constants_are_those_of_the_committed_rows(path: Path) -> None:
    known = Machine.load(path)
    fitted = [calibrate(read([rows])) for rows in COMMITTED]
    assert known.rates in [machine.rates for machine in fitted]

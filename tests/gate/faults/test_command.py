"""The command, end to end, on one clause."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gate.__main__ import main
from gate.faults.recorded import PATH

ROOT = Path(__file__).parents[3]

SCRIPT = """
import sys
from pathlib import Path
from gate.__main__ import main
from gate.commands import faults
from gate.faults.fault import Seed
from gate.faults.source import text_of

text = text_of("impl.layout")
owner, same = "if owner != dcp_rank:", "if dcp_rank != owner:"

def seeds(*_):
    def seed(name, new, why=""):
        return Seed(name, ("KVS-1",), "", {"impl.layout": text.replace(owner, new)}, why)
    return [
        seed("wrong", "if owner != 0:"),
        seed("same", same),
        seed("argued", same, "!= is symmetric."),
        seed("no-import", "if owner != dcp_rank:\\n            import absent\\n        if True:"),
        Seed("not-importable", ("KVS-1",), "", {"impl.layout": text + "\\nimport absent\\n"}),
        Seed("nothing-to-run", ("ENG-1",), "", {"impl.layout": text + "\\nX = 1\\n"}),
    ]

faults._seeds = seeds
sys.exit(main(["faults", "--report", sys.argv[1]]))
"""


def test_each_fault_meets_its_fate_and_no_file_is_touched(tmp_path: Path) -> None:
    before = (ROOT / "impl" / "layout.py").read_bytes()
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    written = json.loads((tmp_path / "faults-impl.json").read_text())
    assert written["red_without_a_fault"] == {}
    assert {one["id"]: one["fate"] for one in written["outcomes"]} == {
        "wrong": "killed",
        "same": "survived",
        "argued": "equivalent",
        "no-import": "killed",
        "not-importable": "broken",
        "nothing-to-run": "not run",
    }
    wrong = written["outcomes"][0]
    assert wrong["clause"] == "KVS-1"
    assert wrong["reason"].startswith("AssertionError: slots of rank")
    line = run.stdout[run.stdout.index("killed: wrong (") :].partition("\n")[0]
    assert " by test_slots_and_tokens_are_in_bijection: AssertionError: slots of rank" in line
    assert (ROOT / "impl" / "layout.py").read_bytes() == before


@pytest.mark.parametrize(
    ("keyword", "code", "said"),
    [("storage_rule", 0, "killed: kvs-1-boundary-off-by-one"), ("nobody", 6, "no property of")],
)
def test_faults_are_put_to_the_properties_that_are_asked_for(
    keyword: str, code: int, said: str
) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "gate", "faults", "--jobs", "1"),
            *("--only", "kvs-1-boundary-off-by-one", "-k", keyword),
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == code
    assert said in run.stdout


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_jobs_that_would_never_end_are_refused(
    jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["faults", "--only", "KVS-1", "--jobs", jobs])
    assert f"--jobs: '{jobs}' must be a whole number, 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--check", "--record"])
def test_shares_of_a_part_are_neither_compared_nor_recorded(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = PATH.read_bytes()
    with pytest.raises(SystemExit) as caught:
        main(["faults", "--only", "KVS-1", option])
    assert caught.value.code == 4
    assert "leave --only and -k out" in capsys.readouterr().err
    assert PATH.read_bytes() == recorded

"""Runs about one layout: of 128 ranks, which only a simulated world holds, and odd ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECODE = "test_replicated_path_equals_gather_path_and_the_oracle"
LINEAR = "test_without_overrides_a_rank_holds_its_own_shard"
GROUP = "test_group_weight_is_the_plain_shards_of_its_ranks_in_order"
MERGE = "test_any_partition_of_the_keys_merges_to_attention_over_all"


@pytest.mark.parametrize(
    ("dcp", "properties"),
    [(8, [DECODE]), (64, [DECODE, LINEAR, GROUP, MERGE]), (128, [DECODE])],
)
def test_properties_pass_on_128_ranks(dcp: int, properties: list[str], tmp_path: Path) -> None:
    judged = judge(f"tp=128,dcp={dcp},interleave=2", ["-k", " or ".join(properties)], tmp_path)
    assert {test.partition("::")[2]: verdict for test, verdict in judged.items()} == dict.fromkeys(
        properties, "pass"
    )


@pytest.mark.parametrize("layout", ["tp=1,dcp=1", "tp=2,dcp=2", "tp=6,dcp=3,interleave=16"])
def test_what_a_layout_has_no_case_of_does_not_apply(layout: str, tmp_path: Path) -> None:
    """A group of all ranks cuts no block, and one rank forms no group."""
    judged = judge(layout, ["-k", "test_grd or test_mem or test_grp"], tmp_path)
    assert set(judged.values()) == {"pass", "not applicable"}


def judge(layout: str, chosen: list[str], folder: Path) -> dict[str, str]:
    """Verdicts of the chosen properties, a run of which about ``layout`` must be green."""
    verdicts = folder / "verdicts.json"
    command = [
        *(sys.executable, "-m", "pytest", "properties", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--layout", layout, "--hypothesis-profile", "ci", *chosen, "--verdicts", str(verdicts)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    tests = json.loads(verdicts.read_text("utf-8"))["tests"]
    return {test["test"]: test["verdict"] for test in tests}

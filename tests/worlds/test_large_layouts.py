"""Layouts of 128 ranks, which only a simulated world can hold on one machine."""

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
    verdicts = tmp_path / "verdicts.json"
    command = [
        *(sys.executable, "-m", "pytest", "properties", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("--layout", f"tp=128,dcp={dcp},interleave=2", "--hypothesis-profile", "ci"),
        *("-k", " or ".join(properties), "--verdicts", str(verdicts)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    judged = json.loads(verdicts.read_text("utf-8"))["tests"]
    assert {test["test"].partition("::")[2] for test in judged} == set(properties)
    assert {test["verdict"] for test in judged} == {"pass"}

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


NO_GROUP_OF_ONE = {
    "test_blocks_within_kv_b_proj_and_beyond_are_supported",
    "test_a_group_of_one_is_the_plain_layer",
}
NO_CUT_QUERY = {
    "test_a_refusal_names_the_option_and_the_values_before_anything_is_allocated[CUT_QUERY]",
    "test_what_is_not_supported_is_refused_in_words_before_weights_are_loaded[CUT_QUERY]",
    "test_nothing_but_a_real_guard_refuses_without_assertions",
}


@pytest.mark.parametrize(
    ("layout", "inapplicable"),
    [
        ("tp=2,dcp=2", NO_GROUP_OF_ONE | NO_CUT_QUERY),  # The group has all rows of the query.
        ("tp=6,dcp=3,interleave=16", NO_GROUP_OF_ONE),
    ],
)
def test_what_a_layout_has_no_case_of_does_not_apply(
    layout: str, inapplicable: set[str], tmp_path: Path
) -> None:
    judged = judge(layout, ["-k", "test_grd or test_mem or test_grp"], tmp_path)
    assert set(judged.values()) == {"pass", "not applicable"}
    assert inapplicable == {
        test.partition("::")[2] for test, verdict in judged.items() if verdict != "pass"
    }


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

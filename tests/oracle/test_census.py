"""What counts as a word about the switch."""

from __future__ import annotations

import pytest

from fixtures.oracle.census import speaks


@pytest.mark.parametrize(
    ("warning", "expected"),
    [
        ("VLLM_DCP_Q_REPLICATE has no effect on SomeAttention", True),
        ("model.layers.0.self_attn ignores dcp_q_replicate", True),
        ("Query replication is not supported by SomeAttention", True),
        ("dcp_q_replicate is experimental", False),
        ("ReplicatedLinear of SomeAttention falls back to a slower kernel", False),
    ],
)
def test_a_warning_counts_that_names_the_switch_and_the_layer(warning: str, expected: bool) -> None:
    names = ("SomeAttention", "model.layers.0.self_attn")
    assert speaks(("something else", warning), names) == expected

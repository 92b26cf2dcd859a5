"""What counts as a word about the switch."""

from __future__ import annotations

import pytest

from fixtures.programs import census
from fixtures.subjects.api import QueryProjections


@pytest.mark.parametrize(
    ("warning", "speaks"),
    [
        ("VLLM_DCP_Q_REPLICATE has no effect on this model", True),
        ("dcp_q_replicate is ignored", True),
        ("Query replication is not supported by this attention", True),
        ("ReplicatedLinear falls back to a slower kernel", False),
    ],
)
def test_a_warning_is_about_the_switch_if_it_names_it(warning: str, speaks: bool) -> None:
    said = QueryProjections(group_sizes=(1,), warnings=("something else", warning))
    assert census.speaks(said) == speaks

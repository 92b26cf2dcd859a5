"""CEN: the census of replicated layers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.clauses import clause
from fixtures.layout import Layout
from fixtures.programs import census
from fixtures.subjects.api import Part, Subject


@clause("CEN-1", "CEN-2", needs=(Part.SWITCH,))
@given(
    layout=strategies.layouts(),
    env=st.sampled_from([None, "0", "1"]),
    config_field=st.sampled_from([None, False, True]),
    q_lora=st.booleans(),
    draw=st.data(),
)
def test_a_deepseek_layer_is_replicated_exactly_when_the_switch_is_on(
    subject: Subject,
    layout: Layout,
    env: str | None,
    config_field: bool | None,
    q_lora: bool,
    draw: st.DataObject,
) -> None:
    dims = draw.draw(strategies.mla_dims(layout.tp), label="dims")
    switched_on = env == "1" if env is not None else bool(config_field)
    replicated = switched_on and layout.dcp > 1
    heads = dims.num_heads // layout.tp
    expected = census.Choice(
        group_size=layout.dcp if replicated else 1,
        out_heads=heads * layout.dcp if replicated else heads,
        dcp_q_replicate=replicated,
    )
    choices = subject.run(layout, census.choose, dims, env, config_field, q_lora)
    for rank, choice in enumerate(choices):
        assert choice == expected, f"rank {rank} chose {choice}, but should choose {expected}"

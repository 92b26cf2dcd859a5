"""CEN: the census of replicated layers."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.clauses import clause
from fixtures.dims import MLADims
from fixtures.gate.profiles import examples
from fixtures.layout import Layout
from fixtures.programs import census
from fixtures.subjects.api import Part, Subject

# Every value of the environment variable with every value of the configuration's field.
SETTINGS = tuple(itertools.product((None, "0", "1"), (None, False, True)))


@st.composite
def layers(draw: st.DrawFn) -> tuple[Layout, MLADims]:
    layout = draw(strategies.layouts(interleaves=strategies.INTERLEAVES))
    return layout, draw(strategies.mla_dims(layout.tp))


@clause("CEN-1", "CEN-2", needs=(Part.SWITCH,))
@settings(max_examples=examples(0.3))
@given(layer=layers(), q_lora=st.booleans())
def test_a_deepseek_layer_is_replicated_exactly_when_the_switch_is_on(
    subject: Subject, layer: tuple[Layout, MLADims], q_lora: bool
) -> None:
    layout, dims = layer
    heads = dims.num_heads // layout.tp
    by_rank = subject.run(layout, census.choose_each, dims, SETTINGS, q_lora)
    for rank, choices in enumerate(by_rank):
        for (env, config_field), choice in zip(SETTINGS, choices, strict=True):
            switched_on = env == "1" if env is not None else bool(config_field)
            replicated = switched_on and layout.dcp > 1
            expected = census.Choice(
                group_size=layout.dcp if replicated else 1,
                out_heads=heads * layout.dcp if replicated else heads,
                dcp_q_replicate=replicated,
            )
            assert choice == expected, (
                f"rank {rank}, environment {env}, field {config_field}: chose {choice}, but "
                f"should choose {expected}"
            )

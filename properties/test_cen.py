"""CEN: the census of replicated layers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.model.dims import MLADims
from fixtures.model.layout import Layout
from fixtures.model.options import SWITCHES, Switch
from fixtures.programs import census
from fixtures.subjects.rank import QueryProjections
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

# Two ranks: each imports every model.
PAIRS = strategies.layouts(tp_sizes=(2,), min_dcp=2)
# One for each place that may decide.
ON = (Switch("1"), Switch(config_field=True), Switch(model_default=True))
OFF = (
    Switch("0", config_field=True),
    Switch("0", model_default=True),
    Switch(config_field=False, model_default=True),
    Switch(config_field=False),
    Switch(),
)


@st.composite
def layers(draw: st.DrawFn) -> tuple[Layout, MLADims]:
    layout = draw(strategies.layouts(interleaves=strategies.INTERLEAVES))
    return layout, draw(strategies.mla_dims(layout.tp))


def _known(subject: Subject, switches: tuple[Switch, ...]) -> tuple[Switch, ...]:
    """Those that the subject has a place for."""
    if Capability.CONFIG_FIELD not in subject.lacks:
        return switches
    return tuple(one for one in switches if one == Switch(one.env))


def _take(subject: Subject, layout: Layout, switch: Switch) -> list[dict[str, QueryProjections]]:
    dims = MLADims(2 * layout.tp, 4, 4, 8, 4, 8)
    by_rank = subject.run(layout, census.take, dims, switch)
    for rank, taken in enumerate(by_rank):
        assert taken, f"rank {rank} knows no attention class"
        unseen = [f"{name} ({one.problem})" for name, one in taken.items() if one.problem]
        assert not unseen, f"rank {rank} cannot tell, as it cannot build {', '.join(unseen)}"
    return by_rank


@clause("CEN-1", needs=(Capability.SWITCH,))
@given(layout=PAIRS, data=st.data())
def test_every_attention_class_replicates_where_the_switch_is_on(
    subject: Subject, layout: Layout, data: st.DataObject
) -> None:
    switch = data.draw(st.sampled_from(_known(subject, ON)), label="switch")
    by_rank = _take(subject, layout, switch)
    # A warning about every rank is logged by one of them.
    said = {name for taken in by_rank for name, one in taken.items() if census.speaks(name, one)}
    for rank, taken in enumerate(by_rank):
        plain = {name for name, one in taken.items() if set(one.group_sizes) != {layout.dcp}}
        ignoring = sorted(plain - said)
        assert not ignoring, (
            f"on rank {rank} the switch is on, but these ignore it: {', '.join(ignoring)}"
        )


@clause("CEN-2", needs=(Capability.SWITCH,))
@given(layout=PAIRS, data=st.data())
def test_no_attention_class_replicates_where_the_switch_is_off(
    subject: Subject, layout: Layout, data: st.DataObject
) -> None:
    switch = data.draw(st.sampled_from(_known(subject, OFF)), label="switch")
    for rank, taken in enumerate(_take(subject, layout, switch)):
        on = sorted(name for name, one in taken.items() if set(one.group_sizes) != {1})
        assert not on, f"on rank {rank} the switch is off, but these replicate: {', '.join(on)}"


@clause("GRD-4", needs=(Capability.SWITCH,))
@given(layout=PAIRS, data=st.data())
def test_every_layer_of_a_model_decides_alike(
    subject: Subject, layout: Layout, data: st.DataObject
) -> None:
    switch = data.draw(st.sampled_from(_known(subject, ON)), label="switch")
    for rank, taken in enumerate(_take(subject, layout, switch)):
        by_module: dict[str, set[int]] = {}
        for name, one in taken.items():
            by_module.setdefault(name.rpartition(".")[0], set()).update(one.group_sizes)
        mixed = sorted(module for module, sizes in by_module.items() if len(sizes) > 1)
        assert not mixed, (
            f"on rank {rank} some layers replicate and others do not in {', '.join(mixed)}"
        )


@clause("CEN-1", "CEN-2", needs=(Capability.SWITCH,), effort=0.5)
@given(layer=layers(), q_lora=st.booleans())
def test_a_deepseek_layer_is_replicated_exactly_when_the_switch_is_on(
    subject: Subject, layer: tuple[Layout, MLADims], q_lora: bool
) -> None:
    layout, dims = layer
    heads = dims.num_heads // layout.tp
    settings = _known(subject, SWITCHES)
    by_rank = subject.run(layout, census.choose_each, dims, settings, q_lora)
    for rank, choices in enumerate(by_rank):
        for switch, choice in zip(settings, choices, strict=True):
            replicated = switch.on and layout.dcp > 1
            expected = census.Choice(
                group_size=layout.dcp if replicated else 1,
                out_heads=heads * layout.dcp if replicated else heads,
                dcp_q_replicate=replicated,
            )
            assert choice == expected, (
                f"rank {rank}, {switch}: chose {choice}, but should choose {expected}"
            )

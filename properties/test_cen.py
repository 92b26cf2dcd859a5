"""CEN: the census of replicated layers."""

from __future__ import annotations

from hypothesis import assume, given

from fixtures.cases import census as cases
from fixtures.cases.census import CensusCase, ChoiceCase
from fixtures.model.options import SWITCHES, Switch
from fixtures.oracle.census import speaks
from fixtures.programs import census
from fixtures.strategies.census import census_cases, choice_cases
from fixtures.subjects.rank import LAYER, QueryProjections
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


def _has_place_for(subject: Subject, switch: Switch) -> bool:
    """True if the subject can be switched there: the configuration is a place that some lack."""
    return Capability.CONFIG_FIELD not in subject.lacks or switch == Switch(switch.env)


def _take(subject: Subject, case: CensusCase) -> list[dict[str, QueryProjections]]:
    """What every attention class made, by its name and by rank."""
    assume(_has_place_for(subject, case.switch))
    by_rank = subject.run(case.layout, census.take, case)
    for rank, classes in enumerate(by_rank):
        assert classes, f"rank {rank} knows no attention class"
        unseen = [f"{name} ({made.problem})" for name, made in classes.items() if made.problem]
        assert not unseen, f"rank {rank} cannot tell, as it cannot build {', '.join(unseen)}"
    return by_rank


@clause("CEN-1", needs=(Capability.SWITCH,))
@given(case=census_cases(cases.ON))
def test_every_attention_class_replicates_where_the_switch_is_on(
    subject: Subject, case: CensusCase
) -> None:
    by_rank = _take(subject, case)
    # A warning about every rank is logged by one of them.
    warned = {
        name
        for classes in by_rank
        for name, made in classes.items()
        if speaks(made.warnings, (name.rpartition(".")[2], LAYER))
    }
    for rank, classes in enumerate(by_rank):
        plain = {
            name for name, made in classes.items() if set(made.group_sizes) != {case.layout.dcp}
        }
        ignoring = sorted(plain - warned)
        assert not ignoring, (
            f"on rank {rank} the switch is on, but these ignore it: {', '.join(ignoring)}"
        )


@clause("CEN-2", needs=(Capability.SWITCH,))
@given(case=census_cases(cases.OFF))
def test_no_attention_class_replicates_where_the_switch_is_off(
    subject: Subject, case: CensusCase
) -> None:
    for rank, classes in enumerate(_take(subject, case)):
        on = sorted(name for name, made in classes.items() if set(made.group_sizes) != {1})
        assert not on, f"on rank {rank} the switch is off, but these replicate: {', '.join(on)}"


@clause("GRD-4", needs=(Capability.SWITCH,))
@given(case=census_cases(cases.ON))
def test_every_layer_of_a_model_decides_alike(subject: Subject, case: CensusCase) -> None:
    for rank, classes in enumerate(_take(subject, case)):
        by_module: dict[str, set[int]] = {}
        for name, made in classes.items():
            by_module.setdefault(name.rpartition(".")[0], set()).update(made.group_sizes)
        mixed = sorted(module for module, sizes in by_module.items() if len(sizes) > 1)
        assert not mixed, (
            f"on rank {rank} some layers replicate and others do not in {', '.join(mixed)}"
        )


@clause("CEN-1", "CEN-2", needs=(Capability.SWITCH,), effort=0.5)
@given(case=choice_cases())
def test_a_deepseek_layer_is_replicated_exactly_when_the_switch_is_on(
    subject: Subject, case: ChoiceCase
) -> None:
    layout, heads = case.layout, case.dims.num_heads // case.layout.tp
    switches = tuple(switch for switch in SWITCHES if _has_place_for(subject, switch))
    by_rank = subject.run(layout, census.choose_each, case, switches)
    for rank, choices in enumerate(by_rank):
        for switch, choice in zip(switches, choices, strict=True):
            replicated = switch.on and layout.dcp > 1
            expected = census.Choice(
                group_size=layout.dcp if replicated else 1,
                out_heads=heads * layout.dcp if replicated else heads,
                dcp_q_replicate=replicated,
            )
            assert choice == expected, (
                f"rank {rank}, {switch}: chose {choice}, but should choose {expected}"
            )

"""CEN: the census by model, of those that have an MLA layer of their own."""

from __future__ import annotations

from hypothesis import assume, given

from fixtures.cases.census import CensusCase
from fixtures.model.options import Switch
from fixtures.oracle.census import speaks
from fixtures.programs import census
from fixtures.strategies.census import census_cases
from fixtures.subjects.rank import LAYER
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

ON, OFF = (Switch("1"), Switch(config_field=True)), (Switch("0"), Switch(config_field=False))


def _ignoring(subject: Subject, case: CensusCase, size: int) -> dict[str, tuple[str, ...]]:
    """Models by the class of theirs that makes other query projections than of ``size`` ranks."""
    assume(Capability.CONFIG_FIELD not in subject.lacks or case.switch.env is not None)
    by_rank = subject.run(case.layout, census.take_own_layers, case)
    ignoring = {}
    for rank, classes in enumerate(by_rank):
        for name, (models, made) in classes.items():
            assert not made.problem, f"rank {rank} cannot build {name}: {made.problem}"
            if set(made.group_sizes) != {size}:
                ignoring[name] = models
    warned = {
        name
        for classes in by_rank
        for name, (_, made) in classes.items()
        if speaks(made.warnings, (name.rpartition(".")[2], LAYER))
    }
    return {name: models for name, models in ignoring.items() if name not in warned}


@clause("CEN-1", needs=(Capability.SWITCH,), effort=0.1)
@given(case=census_cases(ON))
def test_every_model_with_a_layer_of_its_own_replicates_or_says_so(
    subject: Subject, case: CensusCase
) -> None:
    for name, models in _ignoring(subject, case, case.layout.dcp).items():
        raise AssertionError(
            f"the switch is on, but {name} ignores it, and so do {', '.join(models)}"
        )


@clause("CEN-2", needs=(Capability.SWITCH,), effort=0.1)
@given(case=census_cases(OFF))
def test_no_model_with_a_layer_of_its_own_replicates_where_the_switch_is_off(
    subject: Subject, case: CensusCase
) -> None:
    for name, models in _ignoring(subject, case, 1).items():
        raise AssertionError(
            f"the switch is off, but {name} replicates, and so do {', '.join(models)}"
        )

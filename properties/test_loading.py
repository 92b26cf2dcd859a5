"""LIN and DEC: how the checkpoint of a whole module comes in, once and again."""

from __future__ import annotations

from hypothesis import given

from fixtures.cases.reload import ReloadCase
from fixtures.oracle import check
from fixtures.oracle import module as oracle
from fixtures.programs import module_reload
from fixtures.strategies.reload import reload_cases
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


@clause(
    "DEC-8",
    "LIN-6",
    needs=(Capability.REPLICATED_DECODE, Capability.PREFILL, Capability.SWITCH),
    effort=0.4,
)
@given(case=reload_cases())
def test_a_reloaded_module_holds_what_a_fresh_one_does(subject: Subject, case: ReloadCase) -> None:
    second = case.reloaded
    expected, live = oracle.expected(second), second.batch.num_tokens
    layout = second.layout
    for rank, module in enumerate(subject.run(layout, module_reload.reloaded_module, case)):
        assert not module.differing, (
            f"rank {rank} holds {module.differing} after a reload, which a fresh module with "
            "those weights holds otherwise"
        )
        assert not module.moved, f"a reload moves {module.moved} on rank {rank}"
        check.bounded(module.output[:live], expected, f"output of rank {rank} after a reload")

"""LIN and DEC: how the checkpoint of a whole module comes in, once and again."""

from __future__ import annotations

from hypothesis import given

from fixtures.cases.checkpoint import CheckpointCase
from fixtures.cases.reload import ReloadCase
from fixtures.oracle import check
from fixtures.oracle import module as oracle
from fixtures.programs import checkpoints, module_reload
from fixtures.strategies.checkpoint import checkpoint_cases
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


def _check_refused(subject: Subject, case: CheckpointCase) -> None:
    by_rank = subject.run(case.linear.layout, checkpoints.load_misfit, case)
    for rank, refusal in enumerate(by_rank):
        assert refusal is not None, f"rank {rank} loads a checkpoint without a word: {case.fault}"
        assert case.named in refusal.message, (
            f"rank {rank} does not name what is wrong, {case.fault}: {refusal}"
        )


@clause("LIN-7", needs=(Capability.GROUP_LINEAR,), effort=0.5)
@given(case=checkpoint_cases(lacking=True))
def test_a_checkpoint_that_lacks_a_tensor_is_refused_by_its_name(
    subject: Subject, case: CheckpointCase
) -> None:
    _check_refused(subject, case)


@clause("LIN-7", needs=(Capability.GROUP_LINEAR,), effort=0.3)
@given(case=checkpoint_cases(lacking=False))
def test_a_checkpoint_with_a_tensor_too_many_is_refused_by_its_name(
    subject: Subject, case: CheckpointCase
) -> None:
    _check_refused(subject, case)

"""DEC-4 and DEC-2: the arithmetic of published checkpoints."""

from __future__ import annotations

from hypothesis import example, given

from fixtures.cases.module import ModuleCase
from fixtures.oracle import check
from fixtures.oracle import module as oracle
from fixtures.programs import module
from fixtures.strategies.rope import published_cases
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.contract import clause


@clause(
    "DEC-4",
    needs=(Capability.REPLICATED_DECODE, Capability.PREFILL, Capability.SWITCH),
    effort=0.4,
)
@given(case=published_cases())
@example(case=pinned.PAST_THE_FIRST_CONTEXT)
def test_positions_and_scales_are_the_checkpoints(subject: Subject, case: ModuleCase) -> None:
    expected, live = oracle.expected(case), case.batch.num_tokens
    for rank, (off, on) in enumerate(subject.run(case.layout, module.both_steps, case)):
        check.bounded(off.output[:live], expected, f"gather path on rank {rank}")
        check.bounded(on.output[:live], expected, f"replicated path on rank {rank}")
        check.agree(on.output[:live], off.output[:live], expected, f"both paths on rank {rank}")
        check.bitwise(on.cache, off.cache, f"KV cache of rank {rank} after the step")

"""CEN-3: what compile passes leave of the replicated query."""

from __future__ import annotations

from hypothesis import given

from fixtures.cases.module import ModuleCase
from fixtures.programs import passes
from fixtures.strategies.layouts import layouts
from fixtures.strategies.module import module_cases
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


@clause("CEN-3", needs=(Capability.COMPILE_PASSES, Capability.SWITCH), effort=0.1)
@given(case=module_cases(layout=layouts(tp_sizes=(2,), min_dcp=2)))
def test_compile_passes_keep_the_replicated_query(subject: Subject, case: ModuleCase) -> None:
    for rank, by_pass in enumerate(subject.run(case.layout, passes.passed, case)):
        assert by_pass, f"rank {rank} knows no pass over the attention operator"
        unseen = [name for name, found in by_pass.items() if not found or not found[0].before]
        assert not unseen, f"no replicated query on rank {rank} before {', '.join(unseen)}"
        dropping = [
            name
            for name, found in by_pass.items()
            if any(operator.after != operator.before for operator in found)
        ]
        assert not dropping, (
            f"on rank {rank} the attention operator loses its replicated query to "
            f"{', '.join(dropping)}"
        )

"""GRP-7: adapters on any projection of a whole module."""

from __future__ import annotations

import torch
from hypothesis import given

from fixtures.cases.module_adapters import ModuleAdapterCase
from fixtures.oracle import check
from fixtures.oracle import module as oracle
from fixtures.programs import module_adapters
from fixtures.strategies.module_adapters import module_adapter_cases
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


@clause(
    "GRP-7",
    needs=(
        Capability.REPLICATED_DECODE,
        Capability.PREFILL,
        Capability.SWITCH,
        Capability.ADAPTERS,
    ),
    effort=0.5,
)
@given(case=module_adapter_cases())
def test_an_adapter_on_any_projection_is_applied_or_refused(
    subject: Subject, case: ModuleAdapterCase
) -> None:
    expected = oracle.expected(case.module, case.adapters())
    live = case.module.batch.num_tokens
    steps = subject.run(case.module.layout, module_adapters.adapted_step, case)
    for rank, output in enumerate(steps):
        if isinstance(output, torch.Tensor):
            what = f"output of rank {rank} with adapters on {', '.join(case.targets)}"
            check.bounded(output[:live], expected, what)

"""GRP: the DCP-group column-parallel linear."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases.adapters import AdapterCase, Misfit
from fixtures.cases.linear import LinearCase, Returns
from fixtures.cases.module import ModuleCase
from fixtures.model.adapter import MAX_LORA_RANK
from fixtures.oracle import adapters as adapters_oracle
from fixtures.oracle import check
from fixtures.oracle import linear as oracle
from fixtures.oracle import module as module_oracle
from fixtures.programs import adapters, group_linear, linear, module
from fixtures.strategies.adapters import adapter_cases, misfit_cases
from fixtures.strategies.layouts import layouts
from fixtures.strategies.linear import linear_cases, returns
from fixtures.strategies.module import module_cases
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


@clause("GRP-1", needs=(Capability.GROUP_LINEAR,))
@given(case=linear_cases())
def test_group_weight_is_the_plain_shards_of_its_ranks_in_order(
    subject: Subject, case: LinearCase
) -> None:
    plain = subject.run(case.layout, linear.build, case)
    for rank, built in enumerate(subject.run(case.layout, linear.build, case, group=True)):
        members = case.layout.dcp_group_of(rank)
        assert built.attributes["group_size"] == case.layout.dcp
        assert built.attributes["rank_in_group"] == members.index(rank)
        assert built.attributes["qrep_active"] == (case.layout.dcp > 1)
        for name in case.checkpoint():
            expected = plain[rank].parameters[name]
            if case.quantization.is_sharded(name):
                expected = torch.cat([plain[member].parameters[name] for member in members])
            check.bitwise(built.parameters[name], expected, f"group {name} of rank {rank}")


@clause("GRP-2", needs=(Capability.GROUP_LINEAR,))
@given(case=linear_cases())
def test_forward_is_the_all_gather_of_the_plain_forward(subject: Subject, case: LinearCase) -> None:
    whole = oracle.expected(case)
    groups = case.layout.tp // case.layout.dcp
    gathered = subject.run(case.layout, group_linear.gather_plain_forward, case)
    for rank, built in enumerate(subject.run(case.layout, linear.build, case, group=True)):
        expected = whole[:, oracle.rows_of(case, rank // case.layout.dcp, groups)]
        check.bounded(built.output, expected, f"group output of rank {rank}")
        check.agree(
            built.output, gathered[rank], expected, f"group output of rank {rank} and all-gather"
        )


@clause("GRP-3", needs=(Capability.GROUP_LINEAR,))
@given(case=linear_cases(layout=layouts(min_dcp=2), rows=(2, 1, 3, 1, 4)))
def test_local_view_is_the_plain_output_in_memory_of_its_own(
    subject: Subject, case: LinearCase
) -> None:
    whole = oracle.expected(case)
    heads = case.num_heads // case.layout.tp
    for rank, view in enumerate(subject.run(case.layout, group_linear.local_view, case)):
        own = oracle.rows_of(case, rank, case.layout.tp)
        expected = whole[:, own].reshape(case.rows, heads, case.head_dim)
        check.bounded(view.taken, expected, f"local view of rank {rank}")
        check.agree(view.taken, view.expected, expected, f"local view and plain, rank {rank}")
        assert view.contiguous, f"the local view of rank {rank} is not contiguous"
        check.bitwise(
            view.after_group_overwritten,
            view.taken,
            f"local view of rank {rank} after the group output was overwritten",
        )
        check.bitwise(
            view.group_after_view_overwritten,
            view.group,
            f"group output of rank {rank} after its local view was overwritten",
        )


@clause("GRP-3", needs=(Capability.GROUP_LINEAR, Capability.LOCAL_PREFILL_PROJECTION))
@given(case=linear_cases(), returns=returns())
def test_the_local_projection_is_the_plain_output(
    subject: Subject, case: LinearCase, returns: Returns
) -> None:
    whole = oracle.expected(case, add_bias=not returns.skip_bias_add)
    projected = subject.run(case.layout, group_linear.project_locally, case, returns)
    for rank, (local, plain) in enumerate(projected):
        expected = whole[:, oracle.rows_of(case, rank, case.layout.tp)]
        check.bounded(local, expected, f"local projection of rank {rank}")
        check.agree(local, plain, expected, f"local projection and plain, rank {rank}")


@clause("GRP-4", needs=(Capability.GROUP_LINEAR,))
@given(case=linear_cases(layout=layouts().filter(lambda lay: lay.dcp == 1)))
def test_a_group_of_one_is_the_plain_layer(subject: Subject, case: LinearCase) -> None:
    by_rank = zip(
        subject.run(case.layout, linear.build, case),
        subject.run(case.layout, linear.build, case, group=True),
        strict=True,
    )
    for rank, (plain, group) in enumerate(by_rank):
        assert group.attributes == {"group_size": 1, "rank_in_group": 0, "qrep_active": False}
        assert group.types == plain.types
        assert group.shard == plain.shard
        assert group.storage_bytes == plain.storage_bytes
        for name, parameter in plain.parameters.items():
            check.bitwise(group.parameters[name], parameter, f"{name} of rank {rank}")
        check.bitwise(group.output, plain.output, f"output of rank {rank}")
        assert group.local is not None, f"rank {rank} has no local view"
        check.bitwise(group.local.flatten(1), plain.output, f"local view of rank {rank}")


@clause("GRP-5", needs=(Capability.GROUP_LINEAR,))
@given(case=linear_cases(layout=layouts(min_dcp=2)))
def test_one_checkpoint_serves_the_plain_and_the_group_layer(
    subject: Subject, case: LinearCase
) -> None:
    by_rank = zip(
        subject.run(case.layout, linear.build, case),
        subject.run(case.layout, linear.build, case, group=True),
        strict=True,
    )
    on_disk = {name: tuple(tensor.shape) for name, tensor in case.checkpoint().items()}
    for rank, (plain, group) in enumerate(by_rank):
        assert set(group.parameters) == set(plain.parameters) == set(on_disk)
        for layer, pieces in ((plain, case.layout.tp), (group, case.layout.tp // case.layout.dcp)):
            whole = {
                name: (parameter.shape[0] * pieces, *parameter.shape[1:])
                if case.quantization.is_sharded(name)
                else on_disk[name]
                for name, parameter in layer.parameters.items()
            }
            assert whole == on_disk, f"shapes on disk of rank {rank}: {whole}, not {on_disk}"


@clause("GRP-6", needs=(Capability.ADAPTERS,))
@given(case=adapter_cases())
def test_an_adapter_on_the_plain_layer_is_applied(subject: Subject, case: AdapterCase) -> None:
    expected, tp = adapters_oracle.expected(case), case.linear.layout.tp
    for rank, adapted in enumerate(subject.run(case.linear.layout, adapters.adapt, case, False)):
        assert not isinstance(adapted, str), f"rank {rank} refuses: {adapted}"
        check.bounded(
            adapted.output,
            expected[:, oracle.rows_of(case.linear, rank, tp)],
            f"output of rank {rank} with its adapter",
        )


@clause("GRP-6", needs=(Capability.GROUP_LINEAR,))
@given(case=adapter_cases())
def test_an_adapter_on_the_group_layer_is_applied_or_refused(
    subject: Subject, case: AdapterCase
) -> None:
    expected, layout = adapters_oracle.expected(case), case.linear.layout
    for rank, adapted in enumerate(subject.run(layout, adapters.adapt, case, True)):
        if isinstance(adapted, str):
            continue
        group = oracle.rows_of(case.linear, rank // layout.dcp, layout.tp // layout.dcp)
        check.bounded(
            adapted.output,
            expected[:, group],
            f"group output of rank {rank} with its adapter",
        )
        check.bounded(
            adapted.view,
            expected[:, oracle.rows_of(case.linear, rank, layout.tp)],
            f"local view of rank {rank} with its adapter",
        )


@clause("GRP-6", needs=(Capability.GROUP_LINEAR, Capability.LOCAL_PREFILL_PROJECTION))
@given(case=adapter_cases())
def test_an_adapter_on_the_group_layer_reaches_the_local_projection_or_is_refused(
    subject: Subject, case: AdapterCase
) -> None:
    expected, layout = adapters_oracle.expected(case), case.linear.layout
    for rank, local in enumerate(subject.run(layout, adapters.adapt_locally, case)):
        if isinstance(local, str):
            continue
        check.bounded(
            local,
            expected[:, oracle.rows_of(case.linear, rank, layout.tp)],
            f"local projection of rank {rank} with its adapter",
        )


def _check_misfit_is_refused(
    subject: Subject, kind: Misfit, data: st.DataObject, group: bool
) -> None:
    case = data.draw(misfit_cases(kind), label="adapter")
    by_rank = subject.run(case.fitting.linear.layout, adapters.misfit, case, group)
    for rank, tried in enumerate(by_rank):
        refusal, where = tried.refusal, f"the {'group' if group else 'plain'} layer of rank {rank}"
        assert refusal is not None, f"{where} takes an adapter, although {kind}"
        assert refusal.kind == "ValueError", f"{where} refuses with {refusal}, as {kind}"
        for value in adapters_oracle.named_by(case):
            assert re.search(rf"\b{value}\b", refusal.message), (
                f"{where} names no {value}: {refusal}"
            )
        check.bitwise(tried.after, tried.before, f"output of {where} after the refusal")


@clause("GRP-6", needs=(Capability.ADAPTERS,), effort=0.5)
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in Misfit])
@given(data=st.data())
def test_an_adapter_that_does_not_fit_the_plain_layer_is_refused(
    subject: Subject, kind: Misfit, data: st.DataObject
) -> None:
    _check_misfit_is_refused(subject, kind, data, group=False)


@clause("GRP-6", needs=(Capability.GROUP_LINEAR, Capability.GROUP_ADAPTERS), effort=0.5)
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in Misfit])
@given(data=st.data())
def test_an_adapter_that_does_not_fit_the_group_layer_is_refused(
    subject: Subject, kind: Misfit, data: st.DataObject
) -> None:
    _check_misfit_is_refused(subject, kind, data, group=True)


@clause(
    "GRP-6",
    needs=(
        Capability.REPLICATED_DECODE,
        Capability.PREFILL,
        Capability.SWITCH,
        Capability.GROUP_ADAPTERS,
    ),
    effort=0.5,
)
@given(case=module_cases(), adapter_rank=st.integers(1, MAX_LORA_RANK))
def test_an_adapter_on_the_query_reaches_every_row_of_a_module(
    subject: Subject, case: ModuleCase, adapter_rank: int
) -> None:
    case = dataclasses.replace(case, adapter_rank=adapter_rank)
    expected, live = module_oracle.expected(case), case.batch.num_tokens
    for rank, (off, on) in enumerate(subject.run(case.layout, module.both_steps, case)):
        check.bounded(off.output[:live], expected, f"gather path on rank {rank}, with adapter")
        check.bounded(
            on.output[:live], expected, f"replicated path on rank {rank} with its adapter"
        )
        check.agree(on.output[:live], off.output[:live], expected, f"both paths on rank {rank}")

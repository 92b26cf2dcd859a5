"""GRP: the DCP-group column-parallel linear."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.model.adapter import MAX_LORA_RANK
from fixtures.oracle import check
from fixtures.programs import linear, lora, mla
from fixtures.programs.linear import LinearCase, Returns
from fixtures.programs.lora import AdapterCase, Misfit
from fixtures.programs.mla import ModuleCase
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


@clause("GRP-1", needs=(Capability.GROUP_LINEAR,))
@given(case=strategies.linears())
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
@given(case=strategies.linears())
def test_forward_is_the_all_gather_of_the_plain_forward(subject: Subject, case: LinearCase) -> None:
    whole = case.expected()
    columns = case.output_size // case.layout.tp * case.layout.dcp
    gathered = subject.run(case.layout, linear.gather_plain_forward, case)
    for rank, built in enumerate(subject.run(case.layout, linear.build, case, group=True)):
        first = rank // case.layout.dcp * columns
        expected = whole[:, first : first + columns]
        check.bounded(built.output, expected, f"group output of rank {rank}")
        check.agree(
            built.output, gathered[rank], expected, f"group output of rank {rank} and all-gather"
        )


@clause("GRP-3", needs=(Capability.GROUP_LINEAR,))
@given(case=strategies.linears(layout=strategies.layouts(min_dcp=2)))
def test_local_view_is_the_plain_output_in_memory_of_its_own(
    subject: Subject, case: LinearCase
) -> None:
    whole = case.expected()
    heads = case.num_heads // case.layout.tp
    for rank, view in enumerate(subject.run(case.layout, linear.local_view, case)):
        columns = heads * case.head_dim
        expected = whole[:, rank * columns : (rank + 1) * columns].reshape(
            case.rows, heads, case.head_dim
        )
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
@given(case=strategies.linears(), returns=strategies.returns())
def test_the_local_projection_is_the_plain_output(
    subject: Subject, case: LinearCase, returns: Returns
) -> None:
    whole = case.expected(add_bias=not returns.skip_bias_add)
    columns = case.output_size // case.layout.tp
    projected = subject.run(case.layout, linear.project_locally, case, returns)
    for rank, (local, plain) in enumerate(projected):
        expected = whole[:, rank * columns : (rank + 1) * columns]
        check.bounded(local, expected, f"local projection of rank {rank}")
        check.agree(local, plain, expected, f"local projection and plain, rank {rank}")


@clause("GRP-4", needs=(Capability.GROUP_LINEAR,))
@given(case=strategies.linears(layout=strategies.layouts().filter(lambda lay: lay.dcp == 1)))
def test_a_group_of_one_is_the_plain_layer(subject: Subject, case: LinearCase) -> None:
    plain = subject.run(case.layout, linear.build, case)
    group = subject.run(case.layout, linear.build, case, group=True)
    for rank, (one, other) in enumerate(zip(plain, group, strict=True)):
        assert other.attributes == {"group_size": 1, "rank_in_group": 0, "qrep_active": False}
        assert other.types == one.types
        assert other.shard == one.shard
        assert other.storage_bytes == one.storage_bytes
        for name, parameter in one.parameters.items():
            check.bitwise(other.parameters[name], parameter, f"{name} of rank {rank}")
        check.bitwise(other.output, one.output, f"output of rank {rank}")
        assert other.local is not None, f"rank {rank} has no local view"
        check.bitwise(other.local.flatten(1), one.output, f"local view of rank {rank}")


@clause("GRP-5", needs=(Capability.GROUP_LINEAR,))
@given(case=strategies.linears(layout=strategies.layouts(min_dcp=2)))
def test_one_checkpoint_serves_the_plain_and_the_group_layer(
    subject: Subject, case: LinearCase
) -> None:
    plain = subject.run(case.layout, linear.build, case)
    group = subject.run(case.layout, linear.build, case, group=True)
    on_disk = {name: tuple(tensor.shape) for name, tensor in case.checkpoint().items()}
    for rank, (one, other) in enumerate(zip(plain, group, strict=True)):
        assert set(other.parameters) == set(one.parameters) == set(on_disk)
        for layer, pieces in ((one, case.layout.tp), (other, case.layout.tp // case.layout.dcp)):
            whole = {
                name: (parameter.shape[0] * pieces, *parameter.shape[1:])
                if case.quantization.is_sharded(name)
                else on_disk[name]
                for name, parameter in layer.parameters.items()
            }
            assert whole == on_disk, f"shapes on disk of rank {rank}: {whole}, not {on_disk}"


@clause("GRP-6", needs=(Capability.ADAPTERS,))
@given(case=strategies.adapters())
def test_an_adapter_on_the_plain_layer_is_applied(subject: Subject, case: AdapterCase) -> None:
    expected = case.expected()
    columns = case.linear.output_size // case.linear.layout.tp
    for rank, adapted in enumerate(subject.run(case.linear.layout, lora.adapt, case, False)):
        assert not isinstance(adapted, str), f"rank {rank} refuses: {adapted}"
        check.bounded(
            adapted.output,
            expected[:, rank * columns : (rank + 1) * columns],
            f"output of rank {rank} with its adapter",
        )


@clause("GRP-6", needs=(Capability.GROUP_LINEAR,))
@given(case=strategies.adapters())
def test_an_adapter_on_the_group_layer_is_applied_or_refused(
    subject: Subject, case: AdapterCase
) -> None:
    expected, layout = case.expected(), case.linear.layout
    columns = case.linear.output_size // layout.tp
    for rank, adapted in enumerate(subject.run(layout, lora.adapt, case, True)):
        if isinstance(adapted, str):
            continue
        first = rank // layout.dcp * layout.dcp * columns
        check.bounded(
            adapted.output,
            expected[:, first : first + layout.dcp * columns],
            f"group output of rank {rank} with its adapter",
        )
        check.bounded(
            adapted.view,
            expected[:, rank * columns : (rank + 1) * columns],
            f"local view of rank {rank} with its adapter",
        )


@clause("GRP-6", needs=(Capability.GROUP_LINEAR, Capability.LOCAL_PREFILL_PROJECTION))
@given(case=strategies.adapters())
def test_an_adapter_on_the_group_layer_reaches_the_local_projection_or_is_refused(
    subject: Subject, case: AdapterCase
) -> None:
    expected, layout = case.expected(), case.linear.layout
    columns = case.linear.output_size // layout.tp
    for rank, local in enumerate(subject.run(layout, lora.adapt_locally, case)):
        if isinstance(local, str):
            continue
        check.bounded(
            local,
            expected[:, rank * columns : (rank + 1) * columns],
            f"local projection of rank {rank} with its adapter",
        )


def _check_misfit_is_refused(
    subject: Subject, kind: Misfit, data: st.DataObject, group: bool
) -> None:
    case = data.draw(strategies.misfits(kind), label="adapter")
    by_rank = subject.run(case.fitting.linear.layout, lora.misfit, case, group)
    for rank, tried in enumerate(by_rank):
        refusal, where = tried.refusal, f"the {'group' if group else 'plain'} layer of rank {rank}"
        assert refusal is not None, f"{where} takes an adapter, although {kind}"
        assert refusal.kind == "ValueError", f"{where} refuses with {refusal}, as {kind}"
        for value in case.values:
            assert re.search(rf"\b{value}\b", refusal.message), (
                f"{where} names no {value}: {refusal}"
            )
        check.bitwise(tried.after, tried.before, f"output of {where} after the refusal")


@clause("GRP-6", needs=(Capability.ADAPTERS,), effort=0.5)
@pytest.mark.parametrize("kind", [pytest.param(one, id=one.name) for one in Misfit])
@given(data=st.data())
def test_an_adapter_that_does_not_fit_the_plain_layer_is_refused(
    subject: Subject, kind: Misfit, data: st.DataObject
) -> None:
    _check_misfit_is_refused(subject, kind, data, group=False)


@clause("GRP-6", needs=(Capability.GROUP_LINEAR,), effort=0.5)
@pytest.mark.parametrize("kind", [pytest.param(one, id=one.name) for one in Misfit])
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
@given(case=strategies.module_cases(), adapter_rank=st.integers(1, MAX_LORA_RANK))
def test_an_adapter_on_the_query_reaches_every_row_of_a_module(
    subject: Subject, case: ModuleCase, adapter_rank: int
) -> None:
    case = dataclasses.replace(case, adapter_rank=adapter_rank)
    expected, live = case.expected(), case.batch.num_tokens
    for rank, (off, on) in enumerate(subject.run(case.layout, mla.both_steps, case)):
        check.bounded(off.output[:live], expected, f"gather path on rank {rank}, with adapter")
        check.bounded(
            on.output[:live], expected, f"replicated path on rank {rank} with its adapter"
        )
        check.agree(on.output[:live], off.output[:live], expected, f"both paths on rank {rank}")

"""LIN: tp_rank / tp_size overrides on the linear layers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases.linear import LinearCase, Returns
from fixtures.cases.overrides import GatherCase, Impossible, OverrideCase
from fixtures.model.quantization import Scheme
from fixtures.oracle import check
from fixtures.oracle import linear as oracle
from fixtures.oracle.overrides import named_by
from fixtures.programs import group_linear, linear, reload
from fixtures.programs.refusals import Refusal
from fixtures.strategies.linear import linear_cases, returns
from fixtures.strategies.overrides import (
    alternating_gather_cases,
    gather_cases,
    impossible_overrides,
    override_cases,
)
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

STATIC = (Scheme.FP8_TENSOR_STATIC, Scheme.INT8_STATIC, Scheme.INT8_OFFSET)
# Loaders differ in whether they keep a weight as it came or transposed: as many of each.
AS_LOADED = (Scheme.NONE, Scheme.FP8_BLOCK, Scheme.W4, Scheme.W4_OFFSET)
SAVED = (*AS_LOADED, *Scheme, *AS_LOADED)
REFUSALS = ("NotImplementedError", "ValueError")


@clause("LIN-1")
@given(case=linear_cases())
def test_without_overrides_a_rank_holds_its_own_shard(subject: Subject, case: LinearCase) -> None:
    checkpoint, expected = case.checkpoint(), oracle.expected(case)
    for rank, built in enumerate(subject.run(case.layout, linear.build, case)):
        assert set(built.parameters) == set(checkpoint)
        for name in checkpoint:
            shard = oracle.shard(case, name, rank, case.layout.tp)
            check.bitwise(built.parameters[name], shard, f"{name} of rank {rank}")
        own = expected[:, oracle.rows_of(case, rank, case.layout.tp)]
        check.bounded(built.output, own, f"output of rank {rank}")


@clause("LIN-1")
@given(case=linear_cases(), returns=returns())
def test_a_layer_returns_what_it_is_asked_for(
    subject: Subject, case: LinearCase, returns: Returns
) -> None:
    expected = oracle.expected(case, add_bias=not returns.skip_bias_add)
    returned = subject.run(case.layout, linear.returned, case, returns, False)
    for rank, (output, bias) in enumerate(returned):
        own = expected[:, oracle.rows_of(case, rank, case.layout.tp)]
        check.bounded(output, own, f"output of rank {rank}")
        if case.bias and returns.skip_bias_add and returns.return_bias:
            assert bias is not None, f"rank {rank} neither adds nor returns its bias"
            shard = oracle.shard(case, "bias", rank, case.layout.tp)
            check.bitwise(bias, shard, f"bias of rank {rank}")
        else:
            assert bias is None, f"rank {rank} returns a bias"


@clause("LIN-1", needs=(Capability.TP_OVERRIDES,))
@given(case=linear_cases())
def test_overrides_that_repeat_the_process_change_nothing(
    subject: Subject, case: LinearCase
) -> None:
    own = tuple((rank, case.layout.tp) for rank in range(case.layout.tp))
    by_rank = zip(
        subject.run(case.layout, linear.build, case),
        subject.run(case.layout, linear.build_with_shard, case, own, False),
        strict=True,
    )
    for rank, (plain, overridden) in enumerate(by_rank):
        assert plain.types == overridden.types
        assert plain.storage_bytes == overridden.storage_bytes
        for name, parameter in plain.parameters.items():
            check.bitwise(overridden.parameters[name], parameter, f"{name} of rank {rank}")
        check.bitwise(overridden.output, plain.output, f"output of rank {rank}")


@clause("LIN-2", needs=(Capability.TP_OVERRIDES,), effort=0.5)
@pytest.mark.parametrize("scheme", [pytest.param(scheme, id=scheme.name) for scheme in Scheme])
@given(plain_loader=st.booleans(), data=st.data())
def test_an_override_holds_shard_a_of_s(
    subject: Subject, scheme: Scheme, plain_loader: bool, data: st.DataObject
) -> None:
    override = data.draw(override_cases(schemes=[scheme]), label="override")
    case, shards = override.linear, override.shards
    checkpoint, expected = case.checkpoint(), oracle.expected(case)
    built_by_rank = subject.run(
        case.layout, linear.build_with_shard, case, shards, False, plain_loader
    )
    for rank, ((a, s), built) in enumerate(zip(shards, built_by_rank, strict=True)):
        for name in checkpoint:
            check.bitwise(
                built.parameters[name],
                oracle.shard(case, name, a, s),
                f"{name} of rank {rank}, shard {a} of {s}",
            )
        check.bounded(
            built.output,
            expected[:, oracle.rows_of(case, a, s)],
            f"output of rank {rank}, shard {a} of {s}",
        )


@clause("LIN-3", needs=(Capability.TP_OVERRIDES,))
@given(override=override_cases())
def test_disable_tp_wins_over_both_overrides(subject: Subject, override: OverrideCase) -> None:
    case, expected = override.linear, oracle.expected(override.linear)
    built_by_rank = subject.run(
        case.layout, linear.build_with_shard, case, override.shards, disable_tp=True
    )
    for rank, built in enumerate(built_by_rank):
        for name in case.checkpoint():
            whole = oracle.shard(case, name, 0, 1)
            check.bitwise(built.parameters[name], whole, f"{name} of rank {rank}")
        check.bounded(built.output, expected, f"output of rank {rank}")


def _check_dequantized(subject: Subject, override: OverrideCase) -> None:
    case, shards = override.linear, override.shards
    whole = oracle.dequantized(case)
    weights = subject.run(case.layout, linear.dequantized, case, shards)
    for rank, ((a, s), weight) in enumerate(zip(shards, weights, strict=True)):
        check.bounded(
            weight,
            whole[oracle.rows_of(case, a, s)],
            f"dequantised weight of rank {rank}, shard {a} of {s}",
        )


@clause("LIN-2", needs=(Capability.TP_OVERRIDES,), effort=3)
@given(
    override=override_cases(schemes=[s for s in Scheme if s not in STATIC], whole_blocks=True),
)
def test_a_shard_dequantizes_to_the_shard_of_the_whole(
    subject: Subject, override: OverrideCase
) -> None:
    _check_dequantized(subject, override)


@clause("LIN-2", needs=(Capability.TP_OVERRIDES,))
@given(override=override_cases(schemes=(Scheme.FP8_TENSOR_STATIC, *STATIC)))
def test_the_range_of_activations_does_not_change_the_dequantized_weight(
    subject: Subject, override: OverrideCase
) -> None:
    _check_dequantized(subject, override)


def _check_gathered(case: LinearCase, outputs: list[torch.Tensor | Refusal]) -> None:
    for rank, output in enumerate(outputs):
        if isinstance(output, Refusal):
            assert output.kind in REFUSALS, f"rank {rank} refuses with {output}"
            assert "gather_output" in output.message, f"rank {rank} refuses with {output}"
            assert output.nbytes == 0, f"rank {rank} refuses with {output}"
        else:
            check.bounded(output, oracle.expected(case), f"gathered output of rank {rank}")


@clause("LIN-4", needs=(Capability.TP_OVERRIDES,))
@given(case=linear_cases())
def test_the_plain_layer_gathers_the_whole_output(subject: Subject, case: LinearCase) -> None:
    outputs = subject.run(case.layout, linear.gather_output, case, 1, case.layout.tp)
    for rank, output in enumerate(outputs):
        assert not isinstance(output, Refusal), f"rank {rank} refuses with {output}"
    _check_gathered(case, outputs)


@clause("LIN-4", needs=(Capability.TP_OVERRIDES,))
@given(gather=gather_cases())
def test_a_gathered_output_under_an_override_is_whole_or_refused(
    subject: Subject, gather: GatherCase
) -> None:
    case = gather.linear
    outputs = subject.run(case.layout, linear.gather_output, case, gather.stride, gather.shards)
    _check_gathered(case, outputs)


@clause("LIN-3", "LIN-4", needs=(Capability.TP_OVERRIDES,))
@given(gather=alternating_gather_cases())
def test_a_layer_that_keeps_its_whole_weight_has_nothing_to_gather(
    subject: Subject, gather: GatherCase
) -> None:
    case = gather.linear
    outputs = subject.run(
        case.layout, linear.gather_output, case, gather.stride, gather.shards, disable_tp=True
    )
    for rank, output in enumerate(outputs):
        assert not isinstance(output, Refusal), f"rank {rank} refuses with {output}"
    _check_gathered(case, outputs)


@clause("LIN-4", needs=(Capability.GROUP_LINEAR,))
@given(case=linear_cases())
def test_a_gathered_output_of_the_group_layer_is_whole_or_refused(
    subject: Subject, case: LinearCase
) -> None:
    _check_gathered(case, subject.run(case.layout, group_linear.gather_group_output, case))


@clause("LIN-5", needs=(Capability.TP_OVERRIDES,))
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in Impossible])
@given(data=st.data())
def test_an_impossible_override_is_refused_before_memory_is_allocated(
    subject: Subject, kind: Impossible, data: st.DataObject
) -> None:
    impossible = data.draw(impossible_overrides(kind), label="override")
    case, tp_rank, tp_size = impossible.linear, impossible.tp_rank, impossible.tp_size
    refusals = subject.run(case.layout, linear.build_impossible, case, tp_rank, tp_size)
    for rank, refusal in enumerate(refusals):
        assert refusal is not None, (
            f"rank {rank} builds a layer with tp_rank={tp_rank} tp_size={tp_size}, although {kind}"
        )
        assert refusal.kind == "ValueError", f"rank {rank} refuses with {refusal}"
        for value in named_by(impossible):
            assert str(value) in refusal.message, f"rank {rank} names no {value}: {refusal}"
        assert refusal.nbytes == 0, f"rank {rank} refuses with {refusal}"


@clause("LIN-6", needs=(Capability.TP_OVERRIDES,))
@given(override=override_cases(), order=st.permutations(range(5)).map(tuple))
def test_other_weights_are_loaded_into_the_shard_that_the_layer_has(
    subject: Subject, override: OverrideCase, order: tuple[int, ...]
) -> None:
    case, shards = override.linear, override.shards
    second = case.with_other_weights()
    reloads = subject.run(case.layout, reload.reload, case, second, shards, order)
    expected = (oracle.expected(case), oracle.expected(second))
    for rank, ((a, s), reloaded) in enumerate(zip(shards, reloads, strict=True)):
        assert not reloaded.moved, f"rank {rank} moved {reloaded.moved}"
        assert not reloaded.reshaped, f"rank {rank} reshaped {reloaded.reshaped}"
        for name, shard in reloaded.shards.items():
            assert shard == (a, s), f"{name} of rank {rank} has shard {shard}, not {(a, s)}"
        for output, whole, which in zip(
            reloaded.outputs, expected, ("first", "second"), strict=True
        ):
            check.bounded(
                output,
                whole[:, oracle.rows_of(case, a, s)],
                f"output of rank {rank} with its {which} weights",
            )


@clause("LIN-6", needs=(Capability.TP_OVERRIDES,), effort=0.7)
@given(override=override_cases(schemes=SAVED))
def test_a_saved_shard_makes_a_fresh_layer_the_same(
    subject: Subject, override: OverrideCase
) -> None:
    case, shards = override.linear, override.shards
    for rank, (saved, fresh) in enumerate(subject.run(case.layout, reload.restore, case, shards)):
        check.bitwise(fresh, saved, f"output of rank {rank} from its saved state")


@clause("LIN-6", needs=(Capability.GROUP_LINEAR,), effort=0.7)
@given(case=linear_cases(schemes=SAVED))
def test_the_saved_state_of_a_group_layer_makes_a_fresh_one_the_same(
    subject: Subject, case: LinearCase
) -> None:
    for rank, (saved, fresh) in enumerate(subject.run(case.layout, reload.restore, case, None)):
        check.bitwise(fresh, saved, f"output of rank {rank} from its saved state")

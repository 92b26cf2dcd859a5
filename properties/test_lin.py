"""LIN: tp_rank / tp_size overrides on the linear layers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.model.quantization import Scheme
from fixtures.oracle import check
from fixtures.programs import linear
from fixtures.programs.linear import LinearCase, Returns
from fixtures.programs.refusals import Refusal
from fixtures.strategies import Impossible, divisors
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

STATIC = (Scheme.FP8_TENSOR_STATIC, Scheme.INT8_STATIC, Scheme.INT8_OFFSET)
REFUSALS = ("NotImplementedError", "ValueError")


@clause("LIN-1")
@given(case=strategies.linears())
def test_without_overrides_a_rank_holds_its_own_shard(subject: Subject, case: LinearCase) -> None:
    checkpoint, expected = case.checkpoint(), case.expected()
    for rank, built in enumerate(subject.run(case.layout, linear.build, case)):
        assert set(built.parameters) == set(checkpoint)
        for name in checkpoint:
            shard = case.shard(name, rank, case.layout.tp)
            check.bitwise(built.parameters[name], shard, f"{name} of rank {rank}")
        columns = case.output_size // case.layout.tp
        check.bounded(
            built.output,
            expected[:, rank * columns : (rank + 1) * columns],
            f"output of rank {rank}",
        )


@clause("LIN-1")
@given(case=strategies.linears(), returns=strategies.returns())
def test_a_layer_returns_what_it_is_asked_for(
    subject: Subject, case: LinearCase, returns: Returns
) -> None:
    expected = case.expected(add_bias=not returns.skip_bias_add)
    columns = case.output_size // case.layout.tp
    returned = subject.run(case.layout, linear.returned, case, returns, False)
    for rank, (output, bias) in enumerate(returned):
        own = expected[:, rank * columns : (rank + 1) * columns]
        check.bounded(output, own, f"output of rank {rank}")
        if case.bias and returns.skip_bias_add and returns.return_bias:
            assert bias is not None, f"rank {rank} neither adds nor returns its bias"
            check.bitwise(bias, case.shard("bias", rank, case.layout.tp), f"bias of rank {rank}")
        else:
            assert bias is None, f"rank {rank} returns a bias"


@clause("LIN-1", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears())
def test_overrides_that_repeat_the_process_change_nothing(
    subject: Subject, case: LinearCase
) -> None:
    own = tuple((rank, case.layout.tp) for rank in range(case.layout.tp))
    plain = subject.run(case.layout, linear.build, case)
    overridden = subject.run(case.layout, linear.build_with_shard, case, own, False)
    for rank, (one, other) in enumerate(zip(plain, overridden, strict=True)):
        assert one.types == other.types
        assert one.storage_bytes == other.storage_bytes
        for name, parameter in one.parameters.items():
            check.bitwise(other.parameters[name], parameter, f"{name} of rank {rank}")
        check.bitwise(other.output, one.output, f"output of rank {rank}")


@clause("LIN-2", needs=(Capability.TP_OVERRIDES,), effort=0.5)
@pytest.mark.parametrize("scheme", [pytest.param(one, id=one.name) for one in Scheme])
@given(plain_loader=st.booleans(), draw=st.data())
def test_an_override_holds_shard_a_of_s(
    subject: Subject, scheme: Scheme, plain_loader: bool, draw: st.DataObject
) -> None:
    case = draw.draw(strategies.linears(schemes=[scheme]), label="layer")
    shards = draw.draw(strategies.shards(case), label="(tp_rank, tp_size) by rank")
    checkpoint, expected = case.checkpoint(), case.expected()
    built_by_rank = subject.run(
        case.layout, linear.build_with_shard, case, shards, False, plain_loader
    )
    for rank, ((a, s), built) in enumerate(zip(shards, built_by_rank, strict=True)):
        for name in checkpoint:
            check.bitwise(
                built.parameters[name],
                case.shard(name, a, s),
                f"{name} of rank {rank}, shard {a} of {s}",
            )
        columns = case.output_size // s
        check.bounded(
            built.output,
            expected[:, a * columns : (a + 1) * columns],
            f"output of rank {rank}, shard {a} of {s}",
        )


@clause("LIN-3", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears(), draw=st.data())
def test_disable_tp_wins_over_both_overrides(
    subject: Subject, case: LinearCase, draw: st.DataObject
) -> None:
    shards = draw.draw(strategies.shards(case), label="(tp_rank, tp_size) by rank")
    built_by_rank = subject.run(case.layout, linear.build_with_shard, case, shards, True)
    expected = case.expected()
    for rank, built in enumerate(built_by_rank):
        for name in case.checkpoint():
            check.bitwise(built.parameters[name], case.shard(name, 0, 1), f"{name} of rank {rank}")
        check.bounded(built.output, expected, f"output of rank {rank}")


def _check_dequantized(subject: Subject, case: LinearCase, draw: st.DataObject) -> None:
    shards = draw.draw(strategies.shards(case), label="(tp_rank, tp_size) by rank")
    # A subject may run the layer on an identity matrix, whose output has the layer's dtype.
    weight_of_all = case.quantization.weight(case.checkpoint(), case.torch_dtype)
    whole = weight_of_all.rounded(case.torch_dtype)
    weights = subject.run(case.layout, linear.dequantized, case, shards)
    for rank, ((a, s), weight) in enumerate(zip(shards, weights, strict=True)):
        rows = case.output_size // s
        check.bounded(
            weight,
            whole[a * rows : (a + 1) * rows],
            f"dequantised weight of rank {rank}, shard {a} of {s}",
        )


@clause("LIN-2", needs=(Capability.TP_OVERRIDES,), effort=3)
@given(
    case=strategies.linears(schemes=[s for s in Scheme if s not in STATIC], whole_blocks=True),
    draw=st.data(),
)
def test_a_shard_dequantizes_to_the_shard_of_the_whole(
    subject: Subject, case: LinearCase, draw: st.DataObject
) -> None:
    _check_dequantized(subject, case, draw)


@clause("LIN-2", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears(schemes=STATIC), draw=st.data())
def test_the_range_of_activations_does_not_change_the_dequantized_weight(
    subject: Subject, case: LinearCase, draw: st.DataObject
) -> None:
    _check_dequantized(subject, case, draw)


def _check_gathered(case: LinearCase, outputs: list[torch.Tensor | Refusal]) -> None:
    for rank, output in enumerate(outputs):
        if isinstance(output, Refusal):
            assert output.kind in REFUSALS, f"rank {rank} refuses with {output}"
            assert "gather_output" in output.message, f"rank {rank} refuses with {output}"
            assert output.nbytes == 0, f"rank {rank} refuses with {output}"
        else:
            check.bounded(output, case.expected(), f"gathered output of rank {rank}")


@clause("LIN-4", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears())
def test_the_plain_layer_gathers_the_whole_output(subject: Subject, case: LinearCase) -> None:
    outputs = subject.run(case.layout, linear.gather_output, case, 1, case.layout.tp)
    for rank, output in enumerate(outputs):
        assert not isinstance(output, Refusal), f"rank {rank} refuses with {output}"
    _check_gathered(case, outputs)


@clause("LIN-4", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears(), draw=st.data())
def test_a_gathered_output_under_an_override_is_whole_or_refused(
    subject: Subject, case: LinearCase, draw: st.DataObject
) -> None:
    shards = draw.draw(st.sampled_from(divisors(case.layout.tp)), label="shards")
    together = case.layout.tp // shards
    stride = draw.draw(st.sampled_from([together, 1]), label="ranks in a row with one shard")
    _check_gathered(case, subject.run(case.layout, linear.gather_output, case, stride, shards))


@clause("LIN-3", "LIN-4", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears(), draw=st.data())
def test_a_layer_that_keeps_its_whole_weight_has_nothing_to_gather(
    subject: Subject, case: LinearCase, draw: st.DataObject
) -> None:
    shards = draw.draw(st.sampled_from(divisors(case.layout.tp)), label="shards")
    outputs = subject.run(case.layout, linear.gather_output, case, 1, shards, disable_tp=True)
    for rank, output in enumerate(outputs):
        assert not isinstance(output, Refusal), f"rank {rank} refuses with {output}"
    _check_gathered(case, outputs)


@clause("LIN-4", needs=(Capability.GROUP_LINEAR,))
@given(case=strategies.linears())
def test_a_gathered_output_of_the_group_layer_is_whole_or_refused(
    subject: Subject, case: LinearCase
) -> None:
    _check_gathered(case, subject.run(case.layout, linear.gather_group_output, case))


@clause("LIN-5", needs=(Capability.TP_OVERRIDES,))
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name) for kind in Impossible])
@given(data=st.data())
def test_an_impossible_override_is_refused_before_memory_is_allocated(
    subject: Subject, kind: Impossible, data: st.DataObject
) -> None:
    impossible = data.draw(strategies.impossible_overrides(kind), label="override")
    case, tp_rank, tp_size = impossible.case, impossible.tp_rank, impossible.tp_size
    said = subject.run(case.layout, linear.build_impossible, case, tp_rank, tp_size)
    for rank, refusal in enumerate(said):
        assert refusal is not None, (
            f"rank {rank} builds a layer with tp_rank={tp_rank} tp_size={tp_size}, although {kind}"
        )
        assert refusal.kind == "ValueError", f"rank {rank} refuses with {refusal}"
        for value in impossible.values:
            assert str(value) in refusal.message, f"rank {rank} names no {value}: {refusal}"
        assert refusal.nbytes == 0, f"rank {rank} refuses with {refusal}"


@clause("LIN-6", needs=(Capability.TP_OVERRIDES,))
@given(case=strategies.linears(), order=st.permutations(range(5)).map(tuple), draw=st.data())
def test_other_weights_are_loaded_into_the_shard_that_the_layer_has(
    subject: Subject, case: LinearCase, order: tuple[int, ...], draw: st.DataObject
) -> None:
    shards = draw.draw(strategies.shards(case), label="(tp_rank, tp_size) by rank")
    second = case.with_other_weights()
    reloads = subject.run(case.layout, linear.reload, case, second, shards, order)
    expected = (case.expected(), second.expected())
    for rank, ((a, s), reloaded) in enumerate(zip(shards, reloads, strict=True)):
        assert not reloaded.moved, f"rank {rank} moved {reloaded.moved}"
        assert not reloaded.reshaped, f"rank {rank} reshaped {reloaded.reshaped}"
        for name, shard in reloaded.shards.items():
            assert shard == (a, s), f"{name} of rank {rank} has shard {shard}, not {(a, s)}"
        columns = case.output_size // s
        for output, whole, which in zip(
            reloaded.outputs, expected, ("first", "second"), strict=True
        ):
            check.bounded(
                output,
                whole[:, a * columns : (a + 1) * columns],
                f"output of rank {rank} with its {which} weights",
            )


@clause("LIN-6", needs=(Capability.TP_OVERRIDES,), effort=0.7)
@given(case=strategies.linears(), draw=st.data())
def test_a_saved_shard_makes_a_fresh_layer_the_same(
    subject: Subject, case: LinearCase, draw: st.DataObject
) -> None:
    shards = draw.draw(strategies.shards(case), label="(tp_rank, tp_size) by rank")
    for rank, (saved, fresh) in enumerate(subject.run(case.layout, linear.restore, case, shards)):
        check.bitwise(fresh, saved, f"output of rank {rank} from its saved state")


@clause("LIN-6", needs=(Capability.GROUP_LINEAR,), effort=0.7)
@given(case=strategies.linears())
def test_the_saved_state_of_a_group_layer_makes_a_fresh_one_the_same(
    subject: Subject, case: LinearCase
) -> None:
    for rank, (saved, fresh) in enumerate(subject.run(case.layout, linear.restore, case, None)):
        check.bitwise(fresh, saved, f"output of rank {rank} from its saved state")

"""LIN: tp_rank / tp_size overrides on the linear layers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fixtures import check, strategies
from fixtures.clauses import clause
from fixtures.programs import linear
from fixtures.programs.linear import LinearCase
from fixtures.subjects.api import Part, Subject


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


@clause("LIN-1", needs=(Part.TP_OVERRIDES,))
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


@clause("LIN-2", needs=(Part.TP_OVERRIDES,))
@given(case=strategies.linears(), plain_loader=st.booleans(), draw=st.data())
def test_an_override_holds_shard_a_of_s(
    subject: Subject, case: LinearCase, plain_loader: bool, draw: st.DataObject
) -> None:
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


@clause("LIN-3", needs=(Part.TP_OVERRIDES,))
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

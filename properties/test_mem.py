"""MEM: memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases.absorbed import AbsorbedCase
from fixtures.cases.decode import DecodeCase
from fixtures.model.layout import Layout
from fixtures.oracle import absorbed as absorbed_oracle
from fixtures.oracle import check
from fixtures.oracle import decode as decode_oracle
from fixtures.programs import absorbed, derived
from fixtures.strategies.absorbed import absorbed_cases
from fixtures.strategies.decode import decode_cases
from fixtures.strategies.layouts import layouts
from fixtures.strategies.numbers import DTYPES
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause


def _check_dcp_weights(
    layout: Layout, rank: int, held: Mapping[str, torch.Tensor], W_UVs: Sequence[torch.Tensor]
) -> int:
    """Bytes of what a rank holds for DCP itself: nothing but the group's W_UV, and that once."""
    assert held.keys() <= {"W_UV"}, f"rank {rank} holds {sorted(held)} for its group while off"
    gathered = torch.cat([W_UVs[member] for member in layout.dcp_group_of(rank)])
    for name, weight in held.items():
        check.bitwise(weight, gathered, f"{name} of the group on rank {rank}")
    return sum(weight.nbytes for weight in held.values())


@clause("MEM-1", needs=(Capability.GATHER_DECODE,))
@given(case=decode_cases(dtypes=DTYPES))
def test_off_holds_this_ranks_heads_and_nothing_else(subject: Subject, case: DecodeCase) -> None:
    dims, itemsize = case.dims, case.torch_dtype.itemsize
    heads = dims.num_heads // case.layout.tp
    query = heads * dims.qk_head_dim * dims.q_width
    up = heads * (dims.qk_nope_head_dim + dims.v_head_dim) * dims.kv_lora_rank
    # Derived weights are views of kv_b_proj, here of the activations' own dtype.
    plain = (query + up) * itemsize
    without = Layout(case.layout.tp)
    without_dcp = subject.run(without, derived.held_off, dataclasses.replace(case, layout=without))
    by_rank = subject.run(case.layout, derived.held_off, case)
    W_UVs = [held.W_UV for held in by_rank]
    for rank, held in enumerate(by_rank):
        assert held.group_W_UK_T is None, f"rank {rank} holds W_UK_T_dcp_qrep while off"
        expected = plain + _check_dcp_weights(case.layout, rank, held.dcp_weights, W_UVs)
        assert held.weight_bytes == expected, (
            f"rank {rank} holds {held.weight_bytes} bytes of weights, but should hold {expected}"
        )
        assert without_dcp[rank].weight_bytes == plain, (
            f"rank {rank} holds {without_dcp[rank].weight_bytes} bytes of weights without DCP, "
            f"but should hold {plain}"
        )
        check.bitwise(
            held.query_weight, decode_oracle.query_shard(case, rank), f"query weight, rank {rank}"
        )


@clause("MEM-2", needs=(Capability.REPLICATED_DECODE,))
@given(case=decode_cases(layout=layouts(min_dcp=2), dtypes=DTYPES))
def test_on_costs_exactly_the_group_query_weight_and_the_group_W_UK_T(
    subject: Subject, case: DecodeCase
) -> None:
    dims, layout = case.dims, case.layout
    H, P, L = dims.num_heads, dims.qk_nope_head_dim, dims.kv_lora_rank
    query = H * dims.qk_head_dim * dims.q_width * (layout.dcp - 1) // layout.tp
    for rank, weights in enumerate(subject.run(layout, derived.derived_weights, case)):
        copies = layout.dcp if weights.on_keeps_local_copy else layout.dcp - 1
        expected = case.torch_dtype.itemsize * (query + H * P * L * copies // layout.tp)
        extra = weights.on_bytes - weights.off_bytes
        assert extra == expected, f"rank {rank} holds {extra} bytes more on, not {expected}"


@clause("MEM-1", needs=(Capability.GATHER_DECODE,))
@given(case=absorbed_cases())
def test_off_a_quantised_layer_holds_what_it_holds_without_dcp(
    subject: Subject, case: AbsorbedCase
) -> None:
    plain = dataclasses.replace(case, layout=Layout(case.layout.tp))
    without_dcp = subject.run(plain.layout, absorbed.derive, plain, False)
    by_rank = subject.run(case.layout, absorbed.derive, case, False)
    W_UVs = [off.W_UV for off in by_rank]
    for rank, off in enumerate(by_rank):
        without = without_dcp[rank]
        for_the_group = _check_dcp_weights(case.layout, rank, off.dcp_weights, W_UVs)
        assert off.group_W_UK_T is None, f"rank {rank} holds W_UK_T_dcp_qrep while off"
        assert off.names == without.names, f"rank {rank} holds {off.names}, not {without.names}"
        nbytes = without.nbytes + for_the_group
        assert off.nbytes == nbytes, f"rank {rank} holds {off.nbytes} bytes, not {nbytes}"
        assert not without.ledger, f"rank {rank} issues {without.ledger} while loading without DCP"
        assert len(off.ledger) == len(off.dcp_weights), (
            f"rank {rank} issues {off.ledger} while loading"
        )
        check.bitwise(off.W_UK_T, without.W_UK_T, f"W_UK_T of rank {rank}")
        check.bitwise(off.W_UV, without.W_UV, f"W_UV of rank {rank}")


@clause("MEM-2", "DEC-3", needs=(Capability.REPLICATED_DECODE,))
@given(case=absorbed_cases(min_dcp=2))
def test_on_a_quantised_kv_b_proj_costs_the_group_W_UK_T_alone(
    subject: Subject, case: AbsorbedCase
) -> None:
    dims, layout = case.dims, case.layout
    W_UK_T, W_UV = absorbed_oracle.expected(case)
    off_by_rank = subject.run(layout, absorbed.derive, case, False)
    for rank, on in enumerate(subject.run(layout, absorbed.derive, case, True)):
        off = off_by_rank[rank]
        heads = dims.num_heads // layout.tp
        mine = slice(rank * heads, (rank + 1) * heads)
        check.bounded(on.W_UK_T, W_UK_T[mine], f"W_UK_T of rank {rank}")
        check.bounded(on.W_UV, W_UV[mine], f"W_UV of rank {rank}")
        check.bitwise(on.W_UK_T, off.W_UK_T, f"W_UK_T of rank {rank}, on")
        check.bitwise(on.W_UV, off.W_UV, f"W_UV of rank {rank}, on")
        members = layout.dcp_group_of(rank)
        gathered = torch.cat([off_by_rank[member].W_UK_T for member in members])
        assert on.group_W_UK_T is not None
        check.bitwise(on.group_W_UK_T, gathered, f"W_UK_T_dcp_qrep of rank {rank}")
        copies = layout.dcp - 1 if on.shared else layout.dcp
        size = heads * dims.qk_nope_head_dim * dims.kv_lora_rank * case.torch_dtype.itemsize
        extra = on.nbytes - off.nbytes
        assert extra == copies * size, (
            f"rank {rank} holds {extra} bytes more on, not {copies * size}"
        )


@clause("DEC-8", needs=(Capability.REPLICATED_DECODE,))
@given(case=absorbed_cases(min_dcp=2), replicated=st.booleans())
def test_derived_weights_of_a_quantised_kv_b_proj_stay_in_place_and_follow_it(
    subject: Subject, case: AbsorbedCase, replicated: bool
) -> None:
    W_UK_T, W_UV = absorbed_oracle.expected(case, generation=2)
    heads = case.dims.num_heads // case.layout.tp
    for rank, weights in enumerate(
        subject.run(case.layout, absorbed.derive, case, replicated, reloads=2)
    ):
        assert not weights.moved, f"a reload moves {weights.moved} of rank {rank}"
        mine = slice(rank * heads, (rank + 1) * heads)
        check.bounded(weights.W_UK_T, W_UK_T[mine], f"W_UK_T of rank {rank}")
        check.bounded(weights.W_UV, W_UV[mine], f"W_UV of rank {rank}")
        if weights.group_W_UK_T is not None:
            first = case.layout.dcp_group_of(rank)[0] * heads
            group = slice(first, first + heads * case.layout.dcp)
            check.bounded(weights.group_W_UK_T, W_UK_T[group], f"W_UK_T_dcp_qrep of rank {rank}")

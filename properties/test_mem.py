"""MEM: memory."""

from __future__ import annotations

from hypothesis import given

from fixtures import check, strategies
from fixtures.clauses import clause
from fixtures.programs import decode
from fixtures.programs.decode import DecodeCase
from fixtures.subjects.api import Part, Subject


@clause("MEM-1", needs=(Part.GATHER_DECODE,))
@given(case=strategies.decode_cases(dtypes=strategies.DTYPES))
def test_off_holds_this_ranks_heads_and_nothing_else(subject: Subject, case: DecodeCase) -> None:
    dims, itemsize = case.dims, case.torch_dtype.itemsize
    heads = dims.num_heads // case.layout.tp
    query = heads * dims.qk_head_dim * dims.q_width
    up = heads * (dims.qk_nope_head_dim + dims.v_head_dim) * dims.kv_lora_rank
    for rank, held in enumerate(subject.run(case.layout, decode.held_off, case)):
        assert held.group_W_UK_T is None, f"rank {rank} holds W_UK_T_dcp_qrep while off"
        # kv_b_proj and the weights derived from it, which may be views of it.
        allowed = {(query + up) * itemsize, (query + 2 * up) * itemsize}
        assert held.weight_bytes in allowed, (
            f"rank {rank} holds {held.weight_bytes} bytes of weights, but should hold one of "
            f"{sorted(allowed)}"
        )
        check.bitwise(held.query_weight, case.query_shard(rank), f"query weight, rank {rank}")


@clause("MEM-2", needs=(Part.REPLICATED_DECODE,))
@given(case=strategies.decode_cases(layout=strategies.layouts(min_dcp=2), dtypes=strategies.DTYPES))
def test_on_costs_exactly_the_group_query_weight_and_the_group_W_UK_T(
    subject: Subject, case: DecodeCase
) -> None:
    dims, layout = case.dims, case.layout
    H, P, L = dims.num_heads, dims.qk_nope_head_dim, dims.kv_lora_rank
    query = H * dims.qk_head_dim * dims.q_width * (layout.dcp - 1) // layout.tp
    for rank, derived in enumerate(subject.run(layout, decode.derived_weights, case)):
        copies = layout.dcp if derived.on_keeps_local_copy else layout.dcp - 1
        expected = case.torch_dtype.itemsize * (query + H * P * L * copies // layout.tp)
        extra = derived.on_bytes - derived.off_bytes
        assert extra == expected, f"rank {rank} holds {extra} bytes more on, not {expected}"

"""COM: collectives."""

from __future__ import annotations

from hypothesis import given

from fixtures import strategies
from fixtures.clauses import clause
from fixtures.programs import decode
from fixtures.programs.decode import DecodeCase
from fixtures.subjects.api import Part, Subject
from fixtures.worlds.api import Collective

REPLICABLE = strategies.layouts(min_dcp=2, interleaves=strategies.INTERLEAVES)


@clause("COM-1", needs=(Part.REPLICATED_DECODE,))
@given(case=strategies.decode_cases(layout=REPLICABLE))
def test_on_issues_what_off_does_minus_the_query_all_gather(
    subject: Subject, case: DecodeCase
) -> None:
    heads = case.dims.num_heads // case.layout.tp
    for rank, paths in enumerate(subject.run(case.layout, decode.both_paths, case)):
        assert paths.replicated is not None
        query = Collective(
            "all_gather",
            case.layout.dcp_group_of(rank),
            (case.batch.num_decode_tokens, heads, case.dims.kv_width),
            str(case.torch_dtype),
        )
        off, on = paths.gather.ledger, paths.replicated.ledger
        assert query in off, f"rank {rank} off does not all-gather the query: {off}"
        without = list(off)
        without.remove(query)
        assert on == without, f"rank {rank} on issues {on}, but should issue {without}"


@clause("COM-1", needs=(Part.REPLICATED_DECODE,))
@given(case=strategies.decode_cases(layout=REPLICABLE))
def test_loading_on_adds_one_all_gather_of_W_UK_T(subject: Subject, case: DecodeCase) -> None:
    dims = case.dims
    for rank, derived in enumerate(subject.run(case.layout, decode.derived_weights, case)):
        weight = Collective(
            "all_gather",
            case.layout.dcp_group_of(rank),
            (dims.num_heads // case.layout.tp, dims.qk_nope_head_dim, dims.kv_lora_rank),
            str(case.torch_dtype),
        )
        off, on = derived.load_ledger_off, derived.load_ledger_on
        assert on == [*off, weight], f"rank {rank} on issues {on}, off {off}"

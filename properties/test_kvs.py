"""KVS: where the keys live."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.model.layout import Layout
from fixtures.programs import merge
from fixtures.programs.decode import DecodeCase
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.contract import clause

SHARDED = strategies.layouts(interleaves=strategies.INTERLEAVES)


@clause("KVS-1", needs=(Capability.LOCAL_SEQ_LENS,))
@given(layout=SHARDED)
def test_local_lengths_follow_the_storage_rule(subject: Subject, layout: Layout) -> None:
    lens = tuple(range(3 * layout.dcp * layout.interleave + 2))
    expected = [[0] * layout.dcp]
    for token in lens[:-1]:
        counts = list(expected[-1])
        counts[layout.owner(token)] += 1
        expected.append(counts)
    for rank, (mine, every) in enumerate(subject.run(layout, merge.local_lengths, lens)):
        dcp_rank = layout.dcp_group_of(rank).index(rank)
        assert every == expected, f"local lengths on rank {rank}"
        assert mine == [row[dcp_rank] for row in expected], f"own local lengths, rank {rank}"
        assert [sum(row) for row in every] == list(lens)


@clause("KVS-1", needs=(Capability.SLOT_MAPPING,))
@given(layout=SHARDED, blocks=st.integers(1, 3), draw=st.data())
def test_slots_and_tokens_are_in_bijection(
    subject: Subject, layout: Layout, blocks: int, draw: st.DataObject
) -> None:
    block_size = blocks * layout.interleave
    stride = layout.dcp * layout.interleave
    seq_len = draw.draw(st.integers(1, 3 * stride + 1), label="tokens")
    count = -(-len(layout.tokens_of(0, seq_len)) // block_size)
    row = tuple(draw.draw(st.permutations(range(1, count + 3)), label="blocks")[:count])
    for rank, slots in enumerate(subject.run(layout, merge.slots, seq_len, row, block_size)):
        dcp_rank = layout.dcp_group_of(rank).index(rank)
        tokens = layout.tokens_of(dcp_rank, seq_len)
        expected = [-1] * seq_len
        for index, token in enumerate(tokens):
            block, offset = divmod(index, block_size)
            expected[token] = row[block] * block_size + offset
        assert slots == expected, f"slots of rank {rank}"
        assert len({slot for slot in slots if slot >= 0}) == len(tokens)


@clause("KVS-2", needs=(Capability.GATHER_DECODE,))
@given(
    case=strategies.decode_cases(
        layout=SHARDED, decodes=(1, 4), max_query_len=5, transports=("ag_rs",)
    )
)
@example(case=pinned.BEFORE_THE_FIRST_LOCAL_KEY)
@example(case=pinned.NEWEST_KEYS_ON_EVERY_RANK)
def test_metadata_counts_the_keys_that_each_row_may_see(subject: Subject, case: DecodeCase) -> None:
    requests = case.batch.decodes
    positions = [position for request in requests for position in request.positions]
    for rank, lengths in enumerate(subject.run(case.layout, merge.decode_lengths, case)):
        dcp_rank = case.layout.dcp_group_of(rank).index(rank)
        local = [len(case.layout.tokens_of(dcp_rank, request.seq_len)) for request in requests]
        assert lengths.local == local, f"local lengths in the metadata of rank {rank}"
        if lengths.total is not None:
            assert lengths.total == [request.seq_len for request in requests], (
                f"global lengths in the metadata of rank {rank}"
            )
        if lengths.visible is not None:
            visible = [len(case.layout.tokens_of(dcp_rank, p + 1)) for p in positions]
            assert lengths.visible == visible, f"visible keys in the metadata of rank {rank}"

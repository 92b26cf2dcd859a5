"""KVS: where the keys live."""

from __future__ import annotations

from hypothesis import example, given

from fixtures.cases.decode import DecodeCase
from fixtures.cases.storage import SlotsCase
from fixtures.model.layout import Layout
from fixtures.oracle import storage as oracle
from fixtures.programs import storage
from fixtures.strategies.decode import decode_cases
from fixtures.strategies.layouts import INTERLEAVES, layouts
from fixtures.strategies.storage import slots_cases
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.contract import clause

SHARDED = layouts(interleaves=INTERLEAVES)


@clause("KVS-1", needs=(Capability.LOCAL_SEQ_LENS,))
@given(layout=SHARDED)
def test_local_lengths_follow_the_storage_rule(subject: Subject, layout: Layout) -> None:
    longest = 3 * layout.dcp * layout.interleave + 1
    lens, expected = tuple(range(longest + 1)), oracle.local_lengths(layout, longest)
    for rank, (mine, every) in enumerate(subject.run(layout, storage.local_lengths, lens)):
        dcp_rank = layout.dcp_group_of(rank).index(rank)
        assert every == expected, f"local lengths on rank {rank}"
        assert mine == [row[dcp_rank] for row in expected], f"own local lengths, rank {rank}"
        assert [sum(row) for row in every] == list(lens)


@clause("KVS-1", needs=(Capability.SLOT_MAPPING,))
@given(case=slots_cases())
def test_slots_and_tokens_are_in_bijection(subject: Subject, case: SlotsCase) -> None:
    for rank, slots in enumerate(subject.run(case.layout, storage.slots, case)):
        assert slots == oracle.slots(case, rank), f"slots of rank {rank}"
        local = case.layout.tokens_of(case.layout.dcp_group_of(rank).index(rank), case.seq_len)
        assert len({slot for slot in slots if slot >= 0}) == len(local)


@clause("KVS-2", "DEC-12", needs=(Capability.GATHER_DECODE,))
@given(case=decode_cases(layout=SHARDED, decodes=(1, 4), max_query_len=5, transports=("ag_rs",)))
@example(case=pinned.BEFORE_THE_FIRST_LOCAL_KEY)
@example(case=pinned.NEWEST_KEYS_ON_EVERY_RANK)
def test_metadata_counts_the_keys_that_each_row_may_see(subject: Subject, case: DecodeCase) -> None:
    requests = case.batch.decodes
    positions = [position for request in requests for position in request.positions]
    for rank, counts in enumerate(subject.run(case.layout, storage.count_keys, case)):
        dcp_rank = case.layout.dcp_group_of(rank).index(rank)
        local = [len(case.layout.tokens_of(dcp_rank, request.seq_len)) for request in requests]
        assert counts.local == local, f"local lengths in the metadata of rank {rank}"
        assert counts.longest is None or counts.longest >= max(local), (
            f"the metadata of rank {rank} says that no request has more than {counts.longest} "
            f"keys there, but one has {max(local)}"
        )
        if counts.total is not None:
            assert counts.total == [request.seq_len for request in requests], (
                f"global lengths in the metadata of rank {rank}"
            )
        if counts.visible is not None:
            visible = [len(case.layout.tokens_of(dcp_rank, p + 1)) for p in positions]
            assert counts.visible == visible, f"visible keys in the metadata of rank {rank}"

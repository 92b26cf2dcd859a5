"""GRP, DEC and KVS once more: sizes and layouts of production, as far as no GPU is needed."""

from __future__ import annotations

import pytest
from hypothesis import example, given, reject

from fixtures.cases.decode import DecodeCase
from fixtures.cases.metadata import MetadataCase
from fixtures.model.dims import Request
from fixtures.model.layout import Layout
from fixtures.model.parallelism import Replicas
from fixtures.oracle import decode as decode_oracle
from fixtures.oracle import metadata as oracle
from fixtures.programs import metadata, parallelism
from fixtures.strategies.layouts import layouts
from fixtures.strategies.metadata import metadata_cases, runner_batches
from fixtures.strategies.parallelism import replicated_steps
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.both_paths import check_paths
from properties.contract import clause

# Of those for dense MLA on a GPU of NVIDIA's: COMMON is the one that CUTLASS_MLA inherits.
BUILDERS = ("TRITON_MLA", "FLASHMLA", "FLASH_ATTN_MLA", "TOKENSPEED_MLA", "COMMON")


@clause("GRP-8", "KVS-1", needs=(Capability.REPLICAS, Capability.REPLICATED_DECODE), effort=0.1)
@given(beside=replicated_steps())
@example(beside=pinned.SIXTEEN_RANKS)
def test_each_stage_of_each_replica_has_groups_of_its_own(
    subject: Subject, beside: tuple[Replicas, DecodeCase]
) -> None:
    replicas, case = beside
    layout, tokens = case.layout, 2 * case.layout.dcp * case.layout.interleave + 1
    by_rank = subject.run(replicas.world, parallelism.placed_paths, replicas, case, tokens)
    for rank, placed in enumerate(by_rank):
        stage, group = replicas.stages[rank // layout.tp], replicas.dcp_group_of(rank)
        assert placed.tp_ranks == stage, (
            f"the TP group of world rank {rank} is {placed.tp_ranks}, but should be {stage}"
        )
        assert placed.dcp_ranks == group, (
            f"the DCP group of world rank {rank} is {placed.dcp_ranks}, but should be {group}"
        )
        local = layout.tokens_of(group.index(rank), tokens)
        places = {token: index for index, token in enumerate(local)}
        # Blocks are numbered from 0, so that a slot is an index among the local tokens.
        slots = [places.get(token, -1) for token in range(tokens)]
        assert placed.slots == slots, f"slots of world rank {rank}"
        for step in (placed.paths.gather, placed.paths.replicated):
            assert step is not None
            for collective in step.ledger:
                assert collective.ranks == group, f"world rank {rank} issues {collective}"
    whole = decode_oracle.expected(case)
    for stage in replicas.stages:
        check_paths(case, [by_rank[rank].paths for rank in stage], whole)


# One decode and one prefill, and a verified draft in a graph of two.
MIXED = MetadataCase(Layout(2, 2), (Request(5), Request(9, 4)), 0, 0, 1)
LONGEST_ON_ANOTHER_RANK = MetadataCase(Layout(2, 2, 2), (Request(5),), 0, 1, 2)
DRAFT_IN_A_GRAPH = MetadataCase(Layout(2, 2), (Request(6, 2),), 1, 2, 1)


@pytest.mark.parametrize("backend", BUILDERS)
@clause("DEC-5", "DEC-12", "KVS-2", needs=(Capability.BUILDERS,), effort=0.5)
@given(case=metadata_cases())
@example(case=MIXED)
@example(case=LONGEST_ON_ANOTHER_RANK)
@example(case=DRAFT_IN_A_GRAPH)
def test_a_builder_splits_a_batch_as_it_says_and_counts_its_keys(
    subject: Subject, backend: str, case: MetadataCase
) -> None:
    by_rank = subject.run(case.layout, metadata.built, backend, case)
    if case.padding and case.requests[0].query_len > by_rank[0].threshold:
        # Of prefills there is no graph.
        reject()
    for rank, said in enumerate(by_rank):
        where = f"metadata of {backend} on rank {rank}"
        oracle.check(case, case.layout.dcp_group_of(rank).index(rank), said, where)


@clause("KVS-2", "DEC-12", needs=(Capability.BUILDERS,))
@given(layout=layouts(tp_sizes=(2, 4), min_dcp=2, interleaves=(1, 2, 16)), batch=runner_batches())
@example(layout=Layout(2, 2), batch=([5] * 200, 256, 300))
def test_a_model_runner_counts_the_keys_of_hundreds_of_requests_and_of_idle_ones(
    subject: Subject, layout: Layout, batch: tuple[list[int], int, int]
) -> None:
    lengths, padded, _ = batch
    for rank, local in enumerate(subject.run(layout, metadata.runner_lengths, *batch)):
        dcp_rank = layout.dcp_group_of(rank).index(rank)
        expected = [len(layout.tokens_of(dcp_rank, length)) for length in lengths]
        expected += [0] * (padded - len(lengths))
        wrong = [
            at for at, pair in enumerate(zip(local, expected, strict=True)) if len({*pair}) > 1
        ]
        assert not wrong, (
            f"of {padded} requests on rank {rank}, request {wrong[0]} of {len(wrong)} is said to "
            f"have {local[wrong[0]]} keys there, but has {expected[wrong[0]]}"
        )

"""MRG: merging partial attention by log-sum-exp."""

from __future__ import annotations

import dataclasses

import torch
from hypothesis import example, given

from fixtures.cases.decode import DecodeCase
from fixtures.cases.merge import EmptyShard, MergeCase
from fixtures.model.numbers import LN_2
from fixtures.model.partials import Partials
from fixtures.oracle import check
from fixtures.oracle import decode as decode_oracle
from fixtures.oracle import merge as oracle
from fixtures.oracle.backend import expected_partial
from fixtures.oracle.bounds import Bounded
from fixtures.programs import backend, decode, merge
from fixtures.strategies.decode import decode_cases
from fixtures.strategies.layouts import INTERLEAVES, layouts
from fixtures.strategies.merge import merge_cases, merge_transports, reordered_merge_cases
from fixtures.strategies.numbers import DTYPES
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.contract import clause

REPLICABLE = layouts(min_dcp=2, interleaves=INTERLEAVES)
Merged = list[tuple[torch.Tensor, torch.Tensor]]


def _understood(subject: Subject, case: MergeCase) -> MergeCase:
    """``case``, its empty shards marked in a way that the subject knows."""
    if case.empty is EmptyShard.MASKED and Capability.EMPTY_SHARD_MASK in subject.lacks:
        return dataclasses.replace(case, empty=EmptyShard.MINUS_INF)
    return case


def _check_merge(
    subject: Subject, case: MergeCase, transport: str, expected: tuple[Bounded, Bounded]
) -> Merged:
    case = _understood(subject, case)
    results = subject.run(case.layout, merge.merge_partials, case, transport)
    oracle.check_merged(case, transport, results, expected)
    return results


@clause("MRG-1", needs=(Capability.MERGE,))
@given(case=merge_cases(min_keys=1), transport=merge_transports())
def test_any_partition_of_the_keys_merges_to_attention_over_all(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_merge(subject, case, transport, oracle.expected(case))


@clause("MRG-1", needs=(Capability.MERGE,))
@given(case=merge_cases(min_keys=1), transport=merge_transports())
def test_the_output_is_the_same_where_its_lse_is_not_asked_for(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    alone = subject.run(case.layout, merge.merge_outputs, case, transport)
    both = subject.run(case.layout, merge.merge_partials, case, transport)
    for rank, (out, (expected, _)) in enumerate(zip(alone, both, strict=True)):
        check.bitwise(out, expected, f"output merged by {transport} on rank {rank}, without LSE")


@clause("MRG-1", needs=(Capability.MERGE,))
@given(case=merge_cases(min_keys=1, strided=True), transport=merge_transports())
def test_partials_inside_larger_tensors_merge_like_their_copies(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_merge(subject, case, transport, oracle.expected(case))


@clause("MRG-2", needs=(Capability.MERGE,))
@given(case=merge_cases(), transport=merge_transports())
@example(case=pinned.UNEVEN_SHARDS, transport="ag_rs")
@example(case=pinned.UNEVEN_SHARDS, transport="a2a")
def test_an_lse_to_base_2_merges_as_one_to_base_e(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    out, lse = oracle.expected(case)
    results = subject.run(case.layout, merge.merge_partials, case, transport, False)
    for rank, merged in enumerate(results):
        heads = oracle.heads_left_by(case, transport, rank)
        where = f"merged by {transport} on rank {rank}, in base 2"
        check.bounded(merged[0], out[:, heads], f"output {where}")
        in_base_2 = lse[:, heads].scaled(1 / LN_2).rounded(torch.float32)
        check.bounded(merged[1], in_base_2, f"LSE {where}")


@clause("MRG-2", "MRG-5", needs=(Capability.GATHER_DECODE,))
@given(
    case=decode_cases(
        layout=REPLICABLE,
        dtypes=DTYPES,
        transports=("ag_rs",),
        partials=(Partials(), Partials(base_2=True)),
    )
)
def test_a_backend_returns_a_float32_lse_to_the_base_it_declares(
    subject: Subject, case: DecodeCase
) -> None:
    for rank, partial in enumerate(subject.run(case.layout, backend.attend_shard, case)):
        out, lse = expected_partial(case, rank)
        where = f"of the shard of rank {rank}"
        assert partial.lse.dtype == torch.float32, f"LSE {where} is {partial.lse.dtype}"
        unit = 1.0 if partial.is_lse_base_on_e else 1 / LN_2
        # Of rows without keys, lengths tell a merge.
        told = lse.value[:, 0].isfinite() | (case.kernels == "torch")
        check.bounded(partial.lse[told], lse[told].scaled(unit), f"LSE {where}")
        check.bounded(partial.out[told], out[told], f"output {where}")


# Rudest last, so that what fails shrinks to the base alone where that is enough.
RUDE = (Partials(base_2=True), Partials(unwritten=True), Partials(base_2=True, unwritten=True))


@clause("MRG-2", "MRG-3", needs=(Capability.GATHER_DECODE,), effort=0.3)
@given(case=decode_cases(layout=REPLICABLE, max_query_len=2, partials=RUDE))
@example(case=pinned.NOTHING_WRITTEN_FOR_EMPTY_SHARDS)
@example(case=pinned.LSE_TO_BASE_2)
def test_a_layer_merges_by_the_base_and_the_lengths_that_its_backend_needs(
    subject: Subject, case: DecodeCase
) -> None:
    whole = decode_oracle.expected(case)
    steps = subject.run(case.layout, decode.both_paths, case, replicated=False)
    for rank, paths in enumerate(steps):
        expected = whole[:, decode_oracle.columns_of(case, rank)]
        check.bounded(paths.gather.output, expected, f"layer's output on rank {rank}")


@clause("MRG-3", needs=(Capability.MERGE,))
@given(
    case=merge_cases(empties=tuple(EmptyShard)),
    transport=merge_transports(),
)
@example(case=pinned.UNWRITTEN_LSE, transport="ag_rs")
@example(case=pinned.UNWRITTEN_LSE, transport="a2a")
@example(case=pinned.PLUS_INF_LSE, transport="ag_rs")
@example(case=pinned.PLUS_INF_LSE, transport="a2a")
@example(case=pinned.KEYS_ON_ONE_RANK, transport="ag_rs")
@example(case=pinned.KEYS_ON_ONE_RANK, transport="a2a")
def test_a_rank_without_keys_contributes_nothing(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    emptied = dataclasses.replace(
        case, owners=(*(tuple(o for o in row if o) for row in case.owners), ())
    )
    results = _check_merge(subject, emptied, transport, oracle.expected(emptied))
    last = len(emptied.owners) - 1
    for rank, (out, lse) in enumerate(results):
        zeros, minus_inf = torch.zeros_like(out[last]), torch.full_like(lse[last], -torch.inf)
        check.bitwise(out[last], zeros, f"row without any keys on rank {rank}")
        check.bitwise(lse[last], minus_inf, f"LSE without any keys on rank {rank}")


@clause("MRG-4", needs=(Capability.MERGE,))
@given(case=merge_cases(empties=tuple(EmptyShard)))
def test_every_transport_leaves_each_rank_its_own_heads(subject: Subject, case: MergeCase) -> None:
    expected = oracle.expected(case)
    by_transport = {
        transport: _check_merge(subject, case, transport, expected)
        for transport in ("ag_rs", "a2a", "ag_ar")
    }
    for rank in range(case.layout.tp):
        heads = oracle.heads_of(case, rank)
        reference = by_transport["ag_rs"][rank][0]
        others = by_transport["a2a"][rank][0], by_transport["ag_ar"][rank][0][:, heads]
        for name, out in zip(("a2a", "ag_ar"), others, strict=True):
            check.agree(out, reference, expected[0][:, heads], f"{name} and ag_rs on rank {rank}")


@clause("MRG-5", needs=(Capability.MERGE,))
@given(
    case=merge_cases(
        score_scales=(1.0, 1e2, 1e4, 1e30),
        score_levels=(0.0, 1e3, -1e4, 6e4, 1e8, -1e30),
    ),
    transport=merge_transports(),
)
@example(case=pinned.SCORES_OF_60000, transport="ag_rs")
@example(case=pinned.SCORES_OF_60000, transport="a2a")
def test_scores_of_any_magnitude_keep_their_dominant_terms(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    expected = oracle.merged(case)
    _check_merge(subject, case, transport, expected)


@clause("MRG-6", needs=(Capability.MERGE,))
@given(reordered=reordered_merge_cases(), transport=merge_transports())
def test_the_order_of_the_ranks_changes_nothing(
    subject: Subject, reordered: tuple[MergeCase, tuple[int, ...]], transport: str
) -> None:
    case, order = reordered
    shuffled = dataclasses.replace(
        case, owners=tuple(tuple(order[owner] for owner in row) for row in case.owners)
    )
    expected = oracle.expected(case)
    results = _check_merge(subject, case, transport, expected)
    reordered_results = _check_merge(subject, shuffled, transport, expected)
    for rank, ((out, _), (again, _)) in enumerate(zip(results, reordered_results, strict=True)):
        heads = oracle.heads_left_by(case, transport, rank)
        check.agree(out, again, expected[0][:, heads], f"reordered ranks, rank {rank}")


@clause("MRG-6", needs=(Capability.MERGE,))
@given(case=merge_cases(empties=tuple(EmptyShard)))
def test_every_rank_agrees_on_the_merged_lse(subject: Subject, case: MergeCase) -> None:
    case = _understood(subject, case)
    results = subject.run(case.layout, merge.merge_partials, case, "ag_ar")
    for rank, (_, lse) in enumerate(results):
        check.bitwise(lse, results[0][1], f"merged LSE on rank {rank}, against rank 0")

"""MRG: merging partial attention by log-sum-exp."""

from __future__ import annotations

import torch
from hypothesis import given

from fixtures import check, strategies
from fixtures.clauses import clause
from fixtures.programs import merge
from fixtures.programs.merge import MergeCase
from fixtures.subjects.api import Part, Subject


def _check_merge(subject: Subject, case: MergeCase) -> None:
    out, lse = case.expected()
    for rank, merged in enumerate(subject.run(case.layout, merge.merge_partials, case)):
        heads = case.heads_of(rank, case.layout)
        check.bounded(merged[0], out[:, heads], f"merged output of rank {rank}")
        check.bounded(merged[1], lse[:, heads], f"merged log-sum-exp of rank {rank}")


@clause("MRG-1", needs=(Part.MERGE,))
@given(case=strategies.merge_cases(min_keys=1))
def test_any_partition_of_the_keys_merges_to_attention_over_all(
    subject: Subject, case: MergeCase
) -> None:
    _check_merge(subject, case)


@clause("MRG-3", needs=(Part.MERGE,))
@given(case=strategies.merge_cases())
def test_a_rank_without_keys_contributes_nothing(subject: Subject, case: MergeCase) -> None:
    emptied = MergeCase(
        layout=case.layout,
        num_heads=case.num_heads,
        head_dim=case.head_dim,
        owners=(*(tuple(o for o in row if o) for row in case.owners), ()),
        dtype=case.dtype,
        data=case.data,
        score_scale=case.score_scale,
    )
    _check_merge(subject, emptied)
    last = len(emptied.owners) - 1
    for rank, merged in enumerate(subject.run(case.layout, merge.merge_partials, emptied)):
        zeros = torch.zeros(case.num_heads, case.head_dim, dtype=case.torch_dtype)
        check.bitwise(merged[0][last], zeros, f"row without any keys on rank {rank}")

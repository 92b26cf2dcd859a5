"""DEC and MRG once more, on batches that are padded as CUDA graphs pad them."""

from __future__ import annotations

import dataclasses

import torch
from hypothesis import example, given

from fixtures.cases.decode import DecodeCase
from fixtures.cases.merge import MergeCase
from fixtures.oracle import check
from fixtures.oracle import decode as decode_oracle
from fixtures.oracle import merge as oracle
from fixtures.programs import merge, padding
from fixtures.programs.padding import PaddedPaths
from fixtures.strategies.kernels import kernel_merge_cases
from fixtures.strategies.layouts import layouts
from fixtures.strategies.merge import merge_transports
from fixtures.strategies.padding import graph_cases, padded_merge_cases
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.both_paths import check_paths
from properties.contract import clause

POWERS_OF_TWO = layouts(tp_sizes=(2, 4), min_dcp=2)
FOR_KERNELS = padded_merge_cases(kernel_merge_cases(POWERS_OF_TWO))


@clause(
    "DEC-7",
    "MRG-3",
    needs=(Capability.REPLICATED_DECODE, Capability.EMPTY_SHARD_MASK),
    effort=0.5,
)
@given(case=graph_cases())
@example(case=pinned.GRAPH_OF_FOUR_ROWS)
@example(case=pinned.GRAPH_OF_NOBODY)
def test_a_batch_padded_for_a_graph_is_decoded_as_it_is_alone(
    subject: Subject, case: DecodeCase
) -> None:
    by_rank = subject.run(case.layout, padding.graph_paths, case)
    for rank, paths in enumerate(by_rank):
        for path, rows in paths.padding.items():
            for row, output in enumerate(rows):
                what = f"row {row} of padding, {path} path on rank {rank}, which nobody asked for,"
                check.bitwise(output, torch.zeros_like(output), what)
    if case.batch.decodes:
        _check_live_rows(case, by_rank)


def _check_live_rows(case: DecodeCase, by_rank: list[PaddedPaths]) -> None:
    # Of a rounded log-sum-exp the oracle of attention knows nothing: what a layer makes of it
    # is judged by what its backends returned.
    whole = None if case.partials.short else decode_oracle.expected(case)
    check_paths(case, [paths.live for paths in by_rank], whole)


def _check_merge(
    subject: Subject, case: MergeCase, transport: str, kernels: str, is_lse_base_on_e: bool = True
) -> None:
    results = subject.run(
        case.layout, merge.merge_by_kernels, case, kernels, transport, is_lse_base_on_e
    )
    live = len(case.owners) - case.padding
    for rank, merged in enumerate(results):
        for what, tensor, nothing in zip(("output", "LSE"), merged, (0.0, -torch.inf), strict=True):
            for row in range(live, len(tensor)):
                where = f"{what} of row {row - live} of padding, merged by {transport}, rank {rank}"
                check.bitwise(tensor[row], torch.full_like(tensor[row], nothing), where)
    oracle.check_merged(case, transport, results, oracle.expected(case))


@clause("MRG-3", "DEC-7", needs=(Capability.MERGE, Capability.EMPTY_SHARD_MASK))
@given(case=padded_merge_cases(), transport=merge_transports())
@example(case=pinned.TWO_ROWS_OF_PADDING, transport="ag_rs")
@example(case=pinned.TWO_ROWS_OF_PADDING, transport="a2a")
@example(case=pinned.PADDING_OF_NO_REQUEST, transport="ag_rs")
def test_rows_of_padding_are_merged_to_nothing(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_merge(subject, case, transport, "torch")


@clause(
    "MRG-3",
    "MRG-1",
    "DEC-7",
    needs=(Capability.OWN_MERGE_KERNELS, Capability.EMPTY_SHARD_MASK),
    effort=0.2,
)
@given(case=FOR_KERNELS, transport=merge_transports())
@example(
    case=dataclasses.replace(pinned.TWO_ROWS_OF_PADDING, head_dim=8, strided=True),
    transport="a2a",
)
@example(case=dataclasses.replace(pinned.PADDING_OF_NO_REQUEST, head_dim=8), transport="a2a")
def test_own_kernels_merge_rows_of_padding_to_nothing(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_merge(subject, case, transport, subject.own_kernels)

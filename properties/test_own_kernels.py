"""DEC and MRG once more, on the kernels that a subject decodes and merges with in service."""

from __future__ import annotations

import dataclasses

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import check, strategies
from fixtures.clauses import clause
from fixtures.gate.profiles import examples
from fixtures.layout import Layout
from fixtures.programs import backend, decode, own_kernels
from fixtures.programs.decode import DecodeCase
from fixtures.programs.merge import MergeCase
from fixtures.subjects.api import Part, Subject

# An interpreted kernel takes up to seconds an example.
FEW = settings(max_examples=examples(0.05))

POWERS_OF_TWO = strategies.layouts(tp_sizes=(2, 4), min_dcp=2, interleaves=(1, 2, 16))
OTHERS = strategies.layouts(tp_sizes=(3, 6), min_dcp=3, interleaves=(1, 2))


def _draw_case(
    subject: Subject, draw: st.DataObject, layout: st.SearchStrategy[Layout]
) -> DecodeCase:
    return draw.draw(strategies.kernel_cases(subject.own_kernels, layout), label="case")


def _check_both_paths(subject: Subject, case: DecodeCase) -> None:
    whole, live = case.expected(), case.batch.num_tokens
    steps = subject.run(case.layout, decode.both_paths, case, kernels=subject.own_kernels)
    for rank, paths in enumerate(steps):
        expected = whole[:, case.columns_of(rank)]
        assert paths.replicated is not None
        gather, replicated = paths.gather.output[:live], paths.replicated.output[:live]
        check.bounded(gather, expected, f"gather path on rank {rank}")
        check.bounded(replicated, expected, f"replicated path on rank {rank}")
        check.agree(replicated, gather, expected, f"replicated and gather path on rank {rank}")


@clause("DEC-1", "DEC-2", needs=(Part.OWN_DECODE_KERNELS, Part.REPLICATED_DECODE))
@FEW
@given(draw=st.data())
def test_own_kernels_decode_both_paths(subject: Subject, draw: st.DataObject) -> None:
    _check_both_paths(subject, _draw_case(subject, draw, POWERS_OF_TWO))


@clause("DEC-10", needs=(Part.OWN_DECODE_KERNELS, Part.REPLICATED_DECODE))
@FEW
@given(draw=st.data())
def test_own_kernels_decode_for_groups_that_are_no_power_of_two(
    subject: Subject, draw: st.DataObject
) -> None:
    _check_both_paths(subject, _draw_case(subject, draw, OTHERS))


@clause("MRG-1", "MRG-3", needs=(Part.OWN_MERGE_KERNELS,))
@FEW
@given(case=strategies.merge_cases(layout=POWERS_OF_TWO, dtypes=("float32", "float16")))
def test_own_kernels_merge_any_partition(subject: Subject, case: MergeCase) -> None:
    # Triton reads head_dim numbers at once, and wants a power of 2.
    case = dataclasses.replace(case, head_dim=8)
    out, lse = case.expected()
    merged = subject.run(case.layout, own_kernels.merge_partials, case, subject.own_kernels)
    for rank, (merged_out, merged_lse) in enumerate(merged):
        heads = case.heads_of(rank, case.layout)
        check.bounded(merged_out, out[:, heads], f"merged output of rank {rank}")
        check.bounded(merged_lse, lse[:, heads], f"merged LSE of rank {rank}")


@clause("MRG-5", needs=(Part.OWN_DECODE_KERNELS,))
@FEW
@given(draw=st.data())
def test_own_kernels_return_the_lse_in_float32(subject: Subject, draw: st.DataObject) -> None:
    case = _draw_case(subject, draw, POWERS_OF_TWO)
    half = dataclasses.replace(case, dtype="float16")
    partials = subject.run(half.layout, backend.attend_shard, half, subject.own_kernels)
    for rank, partial in enumerate(partials):
        assert partial.lse.dtype == torch.float32, (
            f"the LSE of rank {rank} is {partial.lse.dtype}, but should be torch.float32"
        )

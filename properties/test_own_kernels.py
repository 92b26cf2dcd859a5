"""DEC and MRG once more, on the kernels that a subject decodes and merges with in service."""

from __future__ import annotations

import dataclasses

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fixtures.cases.decode import DecodeCase
from fixtures.cases.merge import EmptyShard, MergeCase
from fixtures.model.layout import Layout
from fixtures.model.numbers import LN_2
from fixtures.oracle import check
from fixtures.oracle import decode as decode_oracle
from fixtures.oracle import merge as oracle
from fixtures.oracle.bounds import Bounded
from fixtures.programs import backend, decode, merge
from fixtures.strategies.kernels import kernel_cases, kernel_merge_cases
from fixtures.strategies.layouts import layouts
from fixtures.strategies.merge import merge_transports
from fixtures.subjects.subject import Capability, Subject
from gate.profiles import examples
from properties import pinned
from properties.contract import clause

# An interpreted decode takes up to seconds an example, a merge tenths of one.
FEW = settings(max_examples=examples(0.05))
FEW_MERGES = settings(max_examples=examples(0.2))

POWERS_OF_TWO = layouts(tp_sizes=(2, 4), min_dcp=2, interleaves=(1, 2, 16))
# Groups of 2, 3 and 6, the first as often as the others.
OTHERS = st.booleans().flatmap(
    lambda two: (
        layouts((6,), 2, (1, 2)).filter(lambda layout: layout.dcp == 2)
        if two
        else layouts((3, 6), 3, (1, 2))
    )
)
# Beyond the range of an exponential, where a 16-bit output hides what the LSE's rounding costs.
ORDINARY_MAGNITUDES = kernel_merge_cases(
    POWERS_OF_TWO,
    dtypes=("float16",),
    score_scales=(1.0, 30.0, 1e2),
    score_levels=(0.0, 200.0, -200.0, 1e3, -1e3),
)
ANY_MAGNITUDES = kernel_merge_cases(
    POWERS_OF_TWO,
    score_scales=(1.0, 1e2, 1e4, 1e30),
    score_levels=(0.0, 1e3, -1e4, 6e4, 1e8, -1e30),
)
MARKED = (EmptyShard.MINUS_INF, EmptyShard.NAN, EmptyShard.PLUS_INF)


def _draw_case(
    subject: Subject, draw: st.DataObject, layout: st.SearchStrategy[Layout]
) -> DecodeCase:
    return draw.draw(kernel_cases(subject.own_kernels, layout), label="case")


def _check_both_paths(subject: Subject, case: DecodeCase) -> None:
    whole, live = decode_oracle.expected(case), case.batch.num_tokens
    steps = subject.run(case.layout, decode.both_paths, case, kernels=subject.own_kernels)
    for rank, paths in enumerate(steps):
        expected = whole[:, decode_oracle.columns_of(case, rank)]
        assert paths.replicated is not None
        gather, replicated = paths.gather.output[:live], paths.replicated.output[:live]
        check.bounded(gather, expected, f"gather path on rank {rank}")
        check.bounded(replicated, expected, f"replicated path on rank {rank}")
        check.agree(replicated, gather, expected, f"replicated and gather path on rank {rank}")


@clause("DEC-1", "DEC-2", needs=(Capability.OWN_DECODE_KERNELS, Capability.REPLICATED_DECODE))
@FEW
@given(draw=st.data())
def test_own_kernels_decode_both_paths(subject: Subject, draw: st.DataObject) -> None:
    _check_both_paths(subject, _draw_case(subject, draw, POWERS_OF_TWO))


@clause("DEC-10", needs=(Capability.OWN_DECODE_KERNELS, Capability.REPLICATED_DECODE))
@settings(max_examples=examples(0.15))
@given(draw=st.data())
def test_own_kernels_decode_for_layouts_that_are_no_power_of_two(
    subject: Subject, draw: st.DataObject
) -> None:
    _check_both_paths(subject, _draw_case(subject, draw, OTHERS))


def _fitting(case: MergeCase) -> MergeCase:
    """A pinned case of as many numbers a head as Triton reads at once, a power of 2."""
    return dataclasses.replace(case, head_dim=8)


def _check_merge(
    subject: Subject,
    case: MergeCase,
    transport: str,
    expected: tuple[Bounded, Bounded],
    is_lse_base_on_e: bool = True,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    results = subject.run(
        case.layout,
        merge.merge_by_kernels,
        case,
        subject.own_kernels,
        transport,
        is_lse_base_on_e,
    )
    oracle.check_merged(case, transport, results, expected)
    return results


@clause("MRG-1", needs=(Capability.OWN_MERGE_KERNELS,))
@FEW_MERGES
@given(case=kernel_merge_cases(POWERS_OF_TWO, min_keys=1), transport=merge_transports())
def test_own_kernels_merge_any_partition(subject: Subject, case: MergeCase, transport: str) -> None:
    _check_merge(subject, case, transport, oracle.expected(case))


@clause("MRG-2", needs=(Capability.OWN_MERGE_KERNELS,))
@FEW_MERGES
@given(case=kernel_merge_cases(POWERS_OF_TWO), transport=merge_transports())
@example(case=_fitting(pinned.UNEVEN_SHARDS), transport="ag_rs")
@example(case=_fitting(pinned.UNEVEN_SHARDS), transport="a2a")
def test_own_kernels_merge_an_lse_to_base_2_as_one_to_base_e(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    out, lse = oracle.expected(case)
    in_base_2 = lse.scaled(1 / LN_2).rounded(torch.float32)
    _check_merge(subject, case, transport, (out, in_base_2), is_lse_base_on_e=False)


def _check_empty_shards(subject: Subject, case: MergeCase, transport: str) -> None:
    emptied = dataclasses.replace(case, owners=(*case.owners, ()))
    merged = _check_merge(subject, emptied, transport, oracle.expected(emptied))
    for rank, (out, lse) in enumerate(merged):
        zeros, minus_inf = torch.zeros_like(out[-1]), torch.full_like(lse[-1], -torch.inf)
        check.bitwise(out[-1], zeros, f"row without any keys on rank {rank}")
        check.bitwise(lse[-1], minus_inf, f"LSE without any keys on rank {rank}")


@clause("MRG-3", needs=(Capability.OWN_MERGE_KERNELS,))
@FEW_MERGES
@given(case=kernel_merge_cases(POWERS_OF_TWO, empties=MARKED), transport=merge_transports())
@example(case=_fitting(pinned.UNWRITTEN_LSE), transport="ag_rs")
@example(case=_fitting(pinned.UNWRITTEN_LSE), transport="a2a")
@example(case=_fitting(pinned.PLUS_INF_LSE), transport="ag_rs")
@example(case=_fitting(pinned.PLUS_INF_LSE), transport="a2a")
def test_own_kernels_let_a_rank_without_keys_contribute_nothing(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_empty_shards(subject, case, transport)


@clause("MRG-3", needs=(Capability.OWN_MERGE_KERNELS, Capability.EMPTY_SHARD_MASK))
@FEW_MERGES
@given(
    case=kernel_merge_cases(POWERS_OF_TWO, empties=(EmptyShard.MASKED,)),
    transport=merge_transports(),
)
@example(case=_fitting(pinned.KEYS_ON_ONE_RANK), transport="ag_rs")
@example(case=_fitting(pinned.KEYS_ON_ONE_RANK), transport="a2a")
def test_own_kernels_mask_shards_without_keys_by_their_lengths(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_empty_shards(subject, case, transport)


@clause("MRG-4", needs=(Capability.OWN_MERGE_KERNELS,))
@FEW_MERGES
@given(case=kernel_merge_cases(POWERS_OF_TWO, empties=MARKED))
def test_own_kernels_leave_each_rank_its_own_heads_by_every_transport(
    subject: Subject, case: MergeCase
) -> None:
    expected = oracle.expected(case)
    reference, a2a, ag_ar = (
        _check_merge(subject, case, transport, expected) for transport in ("ag_rs", "a2a", "ag_ar")
    )
    for rank, (out, _) in enumerate(reference):
        heads = oracle.heads_of(case, rank)
        for name, agreeing in (("a2a", a2a[rank][0]), ("ag_ar", ag_ar[rank][0][:, heads])):
            check.agree(agreeing, out, expected[0][:, heads], f"{name} and ag_rs on rank {rank}")


@clause("MRG-5", needs=(Capability.OWN_MERGE_KERNELS,))
@given(case=ORDINARY_MAGNITUDES | ANY_MAGNITUDES, transport=merge_transports())
def test_own_kernels_keep_the_dominant_terms_of_scores_of_any_magnitude(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_merge(subject, case, transport, oracle.merged(case))


# Where the merged LSE is rounded before it weighs the shards, float16 outputs hide it: what is
# left to see is whether an exponential overflows or vanishes.
@clause("MRG-5", needs=(Capability.OWN_MERGE_KERNELS,))
@FEW_MERGES
@given(
    case=kernel_merge_cases(
        POWERS_OF_TWO, dtypes=("float16",), min_keys=1, score_levels=(200.0, -200.0)
    ),
    transport=merge_transports(),
)
def test_own_kernels_merge_scores_beyond_the_range_of_an_exponential(
    subject: Subject, case: MergeCase, transport: str
) -> None:
    _check_merge(subject, case, transport, oracle.merged(case))


@clause("MRG-5", needs=(Capability.OWN_DECODE_KERNELS,))
@settings(max_examples=examples(0.15))
@given(draw=st.data(), dtype=st.sampled_from(("float32", "float16")))
def test_own_kernels_return_the_lse_in_float32(
    subject: Subject, draw: st.DataObject, dtype: str
) -> None:
    case = dataclasses.replace(_draw_case(subject, draw, POWERS_OF_TWO), dtype=dtype)
    partials = subject.run(case.layout, backend.attend_shard, case, subject.own_kernels)
    for rank, partial in enumerate(partials):
        assert partial.lse.dtype == torch.float32, (
            f"the LSE of rank {rank} is {partial.lse.dtype}, but should be torch.float32"
        )

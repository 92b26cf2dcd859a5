"""COM: collectives."""

from __future__ import annotations

import dataclasses

from hypothesis import example, given

from fixtures.cases.decode import DecodeCase
from fixtures.model.layout import Layout
from fixtures.oracle.ledger import assert_adds, assert_saves
from fixtures.programs import decode, derived
from fixtures.programs.decode import Paths
from fixtures.ranks.api import Collective
from fixtures.strategies.decode import decode_cases, wide_decode_cases
from fixtures.strategies.layouts import INTERLEAVES, layouts
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.both_paths import check_paths
from properties.contract import clause

REPLICABLE = layouts(min_dcp=2, interleaves=INTERLEAVES)
BATCHES = decode_cases(
    layout=REPLICABLE, decodes=(1, 3), max_query_len=3, prefills=(0, 2), paddings=(0, 2)
)


def _check_query_gather_saved(case: DecodeCase, rank: int, paths: Paths) -> None:
    assert paths.replicated is not None
    query = Collective(
        "all_gather",
        case.layout.dcp_group_of(rank),
        (
            case.batch.num_decode_tokens,
            case.dims.num_heads // case.layout.tp,
            case.dims.kv_width,
        ),
        str(case.torch_dtype),
    )
    assert_saves(paths.replicated.ledger, paths.gather.ledger, query, f"rank {rank}")


@clause("COM-1", needs=(Capability.REPLICATED_DECODE, Capability.PREFILL))
@given(case=BATCHES)
def test_on_issues_what_off_does_minus_the_query_all_gather(
    subject: Subject, case: DecodeCase
) -> None:
    for rank, paths in enumerate(subject.run(case.layout, decode.both_paths, case)):
        _check_query_gather_saved(case, rank, paths)


# Its rows are hundreds, for each of which the oracle of attention would take long: DEC-1 and the
# steps around attention say enough.
@clause("COM-1", "DEC-1", needs=(Capability.REPLICATED_DECODE,), effort=0.1)
@given(case=wide_decode_cases())
@example(case=pinned.HUNDREDS_OF_ROWS)
def test_hundreds_of_rows_are_decoded_as_few_are(subject: Subject, case: DecodeCase) -> None:
    by_rank = subject.run(case.layout, decode.both_paths, case)
    for rank, paths in enumerate(by_rank):
        _check_query_gather_saved(case, rank, paths)
    check_paths(case, by_rank)


@clause("COM-1", needs=(Capability.REPLICATED_DECODE,))
@given(case=decode_cases(layout=REPLICABLE))
def test_loading_on_adds_one_all_gather_of_W_UK_T(subject: Subject, case: DecodeCase) -> None:
    dims = case.dims
    for rank, weights in enumerate(subject.run(case.layout, derived.derived_weights, case)):
        gathered = Collective(
            "all_gather",
            case.layout.dcp_group_of(rank),
            (dims.num_heads // case.layout.tp, dims.qk_nope_head_dim, dims.kv_lora_rank),
            str(case.torch_dtype),
        )
        assert_adds(weights.load_ledger_on, weights.load_ledger_off, gathered, f"rank {rank}")


@clause("COM-2", needs=(Capability.REPLICATED_DECODE, Capability.PREFILL))
@given(case=BATCHES)
def test_every_rank_issues_the_same_collectives(subject: Subject, case: DecodeCase) -> None:
    steps = subject.run(case.layout, decode.both_paths, case)
    loads = subject.run(case.layout, derived.derived_weights, case)
    for rank, (paths, load) in enumerate(zip(steps, loads, strict=True)):
        group = case.layout.dcp_group_of(rank)
        assert paths.replicated is not None
        for name, ledger, first in (
            ("a step off", paths.gather.ledger, steps[0].gather.ledger),
            ("a step on", paths.replicated.ledger, steps[0].replicated.ledger),  # type: ignore[union-attr]
            ("loading off", load.load_ledger_off, loads[0].load_ledger_off),
            ("loading on", load.load_ledger_on, loads[0].load_ledger_on),
        ):
            expected = [_moved(collective, case.layout, group) for collective in first]
            assert ledger == expected, (
                f"in {name}, rank {rank} issues {ledger}, but rank 0 {expected}"
            )


def _moved(collective: Collective, layout: Layout, group: tuple[int, ...]) -> Collective:
    """A collective of rank 0 as a rank of another DCP group issues it."""
    ranks = group if collective.ranks == layout.dcp_group_of(0) else collective.ranks
    return dataclasses.replace(collective, ranks=ranks)

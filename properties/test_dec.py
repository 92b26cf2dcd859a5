"""DEC: the MLA layer."""

from __future__ import annotations

import torch
from hypothesis import given

from fixtures import check, strategies
from fixtures.clauses import clause
from fixtures.programs import decode
from fixtures.programs.decode import DecodeCase
from fixtures.subjects.api import Part, Subject

REPLICABLE = strategies.layouts(min_dcp=2, interleaves=strategies.INTERLEAVES)


@clause("DEC-1", "DEC-2", needs=(Part.REPLICATED_DECODE,))
@given(case=strategies.decode_cases(layout=REPLICABLE, dtypes=strategies.DTYPES))
def test_replicated_path_equals_gather_path_and_the_oracle(
    subject: Subject, case: DecodeCase
) -> None:
    whole = case.expected()
    live = case.batch.num_tokens
    for rank, paths in enumerate(subject.run(case.layout, decode.both_paths, case)):
        expected = whole[:, case.columns_of(rank)]
        assert paths.replicated is not None
        gather, replicated = paths.gather.output[:live], paths.replicated.output[:live]
        check.bounded(gather, expected, f"gather path on rank {rank}")
        check.bounded(replicated, expected, f"replicated path on rank {rank}")
        check.agree(replicated, gather, expected, f"replicated and gather path on rank {rank}")


@clause("DEC-2", needs=(Part.GATHER_DECODE,))
@given(case=strategies.decode_cases())
def test_gather_path_equals_the_oracle(subject: Subject, case: DecodeCase) -> None:
    whole = case.expected()
    steps = subject.run(case.layout, decode.both_paths, case, replicated=False)
    for rank, paths in enumerate(steps):
        check.bounded(
            paths.gather.output[: case.batch.num_tokens],
            whole[:, case.columns_of(rank)],
            f"gather path on rank {rank}",
        )


@clause("DEC-3", needs=(Part.REPLICATED_DECODE,))
@given(case=strategies.decode_cases(layout=REPLICABLE, dtypes=strategies.DTYPES))
def test_group_W_UK_T_is_the_ranks_own_in_rank_order(subject: Subject, case: DecodeCase) -> None:
    derived = subject.run(case.layout, decode.derived_weights, case)
    for rank, weights in enumerate(derived):
        check.bitwise(weights.on_W_UK_T, weights.off_W_UK_T, f"W_UK_T of rank {rank}, on")
        check.bitwise(weights.on_W_UV, weights.off_W_UV, f"W_UV of rank {rank}, on")
        expected = torch.cat(
            [derived[member].off_W_UK_T for member in case.layout.dcp_group_of(rank)]
        )
        assert weights.group_W_UK_T is not None
        check.bitwise(weights.group_W_UK_T, expected, f"W_UK_T_dcp_qrep of rank {rank}")

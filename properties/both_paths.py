"""What DEC-1 and DEC-2 ask of one step, on the gather path and on the replicated path."""

from __future__ import annotations

from collections.abc import Sequence

from fixtures.cases.decode import DecodeCase
from fixtures.model.attended import Attended
from fixtures.oracle import check
from fixtures.oracle import decode as oracle
from fixtures.oracle.backend import expected_queries
from fixtures.oracle.bounds import Bounded
from fixtures.oracle.paths import check_alike, merged_values
from fixtures.programs.decode import Paths, Step


def check_paths(case: DecodeCase, by_rank: Sequence[Paths], whole: Bounded | None = None) -> None:
    """Both paths are the oracle's, step by step, and the same where their queries are.

    Args:
        case: The step.
        by_rank: Both paths of each rank, the replicated one where there is one.
        whole: What the oracle expects of the live rows, every head; None leaves out what takes
            it long, the attention of each row.

    Raises:
        AssertionError: They are not.
    """
    gathers = [paths.gather for paths in by_rank]
    replicated = [paths.replicated for paths in by_rank if paths.replicated is not None]
    for name, steps in (("gather", gathers), ("replicated", replicated)):
        for rank, step in enumerate(steps):
            _check_by_the_oracle(case, whole, rank, steps, f"{name} path on rank {rank}", step)
    for rank in range(len(replicated)):
        _check_alike(case, rank, gathers, replicated)


def _check_by_the_oracle(
    case: DecodeCase,
    whole: Bounded | None,
    rank: int,
    steps: Sequence[Step],
    where: str,
    step: Step,
) -> None:
    if whole is not None:
        live = step.output[: case.batch.num_tokens]
        check.bounded(live, whole[:, oracle.columns_of(case, rank)], where)
    if step.attended is not None:
        handed = expected_queries(case, rank)
        check.bounded(step.attended.query, handed, f"query that the {where} hands its backend")
        merged = merged_values(case, rank, _of_group(case, rank, steps))
        decoded = step.output[: case.batch.num_decode_tokens]
        check.bounded(decoded, merged, f"{where}, by what its group's backends return,")


def _check_alike(
    case: DecodeCase, rank: int, gathers: Sequence[Step], replicated: Sequence[Step]
) -> None:
    off, on = gathers[rank], replicated[rank]
    decodes, live = case.batch.num_decode_tokens, case.batch.num_tokens
    same = (off.prefill_query == on.prefill_query).flatten(1).all(1)
    check.bitwise(
        on.output[decodes:live][same],
        off.output[decodes:live][same],
        f"prefill rows of the replicated path on rank {rank}, of queries that are the same bits,",
    )
    if off.attended is not None:
        check_alike(
            case,
            rank,
            (off.output[:decodes], _of_group(case, rank, gathers)),
            (on.output[:decodes], _of_group(case, rank, replicated)),
        )


def _of_group(case: DecodeCase, rank: int, steps: Sequence[Step]) -> list[Attended]:
    calls = [steps[member].attended for member in case.layout.dcp_group_of(rank)]
    return [call for call in calls if call is not None]

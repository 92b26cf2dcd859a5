"""How small a fault DEC-1 and DEC-2 see: ``python -m benchmarks.smallest_faults``.

Runs steps of impl on both paths, multiplies what the replicated path returned, or what both did,
by 1 + eps, rounded to the dtype, and asks what the properties ask. Prints by dtype and pattern of
the numbers the smallest eps that one of the examples catches, and the smallest that every
example with a decode row catches, of a ladder of 1, 2 and 5.
"""

from __future__ import annotations

import argparse
import bisect
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, settings

from fixtures.cases.decode import DecodeCase
from fixtures.model.numbers import Pattern
from fixtures.oracle import decode as oracle
from fixtures.oracle.bounds import Bounded
from fixtures.programs import decode
from fixtures.programs.decode import Paths
from fixtures.strategies.decode import PATTERNS, decode_cases
from fixtures.strategies.layouts import INTERLEAVES, layouts
from fixtures.strategies.numbers import DTYPES
from fixtures.subjects import registry
from gate.arguments import positive
from properties.both_paths import check_paths

LADDER = sorted(digit * 10.0**power for power in range(-7, 0) for digit in (1, 2, 5))
SEEDED = {"DEC-1": ("replicated",), "DEC-2": ("gather", "replicated")}


@dataclass(frozen=True)
class Run:
    """A step, and what it came to."""

    case: DecodeCase
    whole: Bounded
    by_rank: list[Paths]

    def catches(self, eps: float, paths: Sequence[str]) -> bool:
        """Whether the outputs of ``paths``, off by ``eps``, are refused."""
        by_rank = copy.deepcopy(self.by_rank)
        for ran in by_rank:
            for path in paths:
                output = getattr(ran, path).output
                output.copy_(output.double() * (1 + eps))
        try:
            check_paths(self.case, by_rank, self.whole)
        except AssertionError:
            return True
        return False


def drawn(dtype: str, pattern: Pattern, examples: int) -> list[Run]:
    """Steps that DEC-1's property draws, of one dtype and pattern, and their outputs."""
    subject, worlds = registry.load("impl", None)
    runs: list[Run] = []

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=decode_cases(
            layout=layouts(tp_sizes=(2, 4, 8), min_dcp=2, interleaves=INTERLEAVES),
            dtypes=(dtype,),
            patterns=(pattern,),
        )
    )
    def collect(case: DecodeCase) -> None:
        by_rank = subject.run(case.layout, decode.both_paths, case)
        runs.append(Run(case, oracle.expected(case), by_rank))

    collect()
    worlds.close()
    return runs


def smallest(caught: Callable[[float], bool]) -> str:
    """The first step of the ladder that is caught; what is caught of less is of more as well."""
    at = bisect.bisect_left(LADDER, True, key=caught)
    return f"{LADDER[at]:.0e}" if at < len(LADDER) else "none"


def row(clause: str, dtype: str, pattern: Pattern, runs: Sequence[Run]) -> str:
    """A line of the table."""

    def caught(eps: float) -> list[bool]:
        return [run.catches(eps, SEEDED[clause]) for run in runs]

    some, every = smallest(lambda eps: any(caught(eps))), smallest(lambda eps: all(caught(eps)))
    return f"| {clause} | {dtype} | {pattern} | {some} | {every} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=positive, default=6, help="of each pattern")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    arguments = parser.parse_args()
    print("| clause | dtype | numbers | some example | every example |")
    print("| --- | --- | --- | --- | --- |")
    for dtype in arguments.dtypes:
        for pattern in PATTERNS:
            runs = drawn(dtype, pattern, arguments.examples)
            for clause in SEEDED:
                print(row(clause, dtype, runs[0].case.data.pattern, runs), flush=True)


if __name__ == "__main__":
    main()

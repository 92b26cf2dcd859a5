"""How long a refusal takes: ``python -m benchmarks.refusals [--subject vllm] [--repeat N]``.

Starts up what is not supported, builds layers with impossible overrides and puts on adapters that
do not fit, on four ranks that are processes, and prints the seconds until all of them have refused
it, or have gone through where the subject has no such guard; the slowest last.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial

from fixtures.cases.adapters import AdapterCase, Misfit, MisfitCase
from fixtures.cases.linear import LinearCase, Returns
from fixtures.cases.startup import Obstacle, StartUp
from fixtures.model.adapter import MAX_LORA_RANK
from fixtures.model.dims import MLADims
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data
from fixtures.model.options import Options, Switch
from fixtures.model.quantization import Quantization, Scheme
from fixtures.oracle.startup import obstacles
from fixtures.programs import adapters, linear, startup
from fixtures.subjects import registry
from fixtures.subjects.subject import Subject
from gate.arguments import positive

ON = Switch("1")
LAYOUT = Layout(4, 2)
DIMS = MLADims(
    num_heads=8,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    kv_lora_rank=16,
    v_head_dim=10,
    q_width=24,
)
REFUSED: dict[Obstacle, Options] = {
    Obstacle.PCP: Options(ON, pcp=2),
    Obstacle.HEAD_PADDING: Options(ON, q_pad_num_heads=64),
    Obstacle.NO_LSE: Options(ON, can_return_lse=False),
    Obstacle.OPAQUE_KV_B_PROJ: Options(ON, opaque_kv_b_proj=True),
    # The query has 80 rows in two shards, kv_b_proj 128 in four.
    Obstacle.CUT_QUERY: Options(ON, quantization=Quantization(Scheme.FP8_BLOCK, (16, 16))),
    Obstacle.CUT_KV_B_PROJ: Options(ON, quantization=Quantization(Scheme.FP8_BLOCK, (20, 16))),
    Obstacle.LORA_ON_KV_B_PROJ: Options(ON, lora_targets=("kv_b_proj",)),
}


OVERRIDES = {
    "a negative rank": (-1, 4),
    "a rank beyond the size": (4, 4),
    "no shards": (0, 0),
    "uneven shards": (0, 3),
    "a rank alone": (0, None),
}
MISFITS = {
    Misfit.RANK: ((MAX_LORA_RANK + 1, 24), (80, MAX_LORA_RANK + 1)),
    Misfit.INPUT: ((2, 23), (80, 2)),
    Misfit.OUTPUT: ((2, 24), (20, 2)),
}
LINEAR = LinearCase(LAYOUT, 24, 10, 8, False, "float32", 3, Data(0))


def refusals(subject: Subject) -> Mapping[str, Callable[[], list[bool]]]:
    """By what is asked for: asks, and returns which ranks refused."""

    def start_up(obstacle: Obstacle) -> list[bool]:
        start = StartUp(LAYOUT, DIMS, True, REFUSED[obstacle])
        assert obstacles(start) == {obstacle}
        started = subject.run(LAYOUT, startup.start, start)
        return [rank.refusal is not None for rank in started]

    def override(pair: tuple[int, int | None]) -> list[bool]:
        by_rank = subject.run(LAYOUT, linear.build_impossible, LINEAR, *pair)
        return [refusal is not None for refusal in by_rank]

    def adapter(kind: Misfit) -> list[bool]:
        case = MisfitCase(AdapterCase(LINEAR, (2,), Returns()), kind, *MISFITS[kind])
        tried = subject.run(LAYOUT, adapters.misfit, case, True)
        return [rank.refusal is not None for rank in tried]

    return (
        {str(obstacle): partial(start_up, obstacle) for obstacle in REFUSED}
        | {f"override of {what}": partial(override, pair) for what, pair in OVERRIDES.items()}
        | {f"adapter: {kind}": partial(adapter, kind) for kind in MISFITS}
    )


def slowest(ask: Callable[[], list[bool]], repeat: int) -> tuple[float, int]:
    """The longest of ``repeat`` times in seconds, and how many ranks refused."""
    longest, refused = 0.0, 0
    for _ in range(repeat):
        before = time.perf_counter()
        by_rank = ask()
        longest, refused = max(longest, time.perf_counter() - before), sum(by_rank)
    return longest, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", choices=sorted(registry.SUBJECTS), default="impl")
    parser.add_argument("--repeat", type=positive, default=5)
    args = parser.parse_args()
    subject, worlds = registry.load(args.subject, "forked")
    try:
        # Whatever is started and imported once is none of a refusal's time.
        plain = StartUp(LAYOUT, DIMS, True, Options(ON))
        subject.run(LAYOUT, startup.start, plain)
        times = {what: slowest(ask, args.repeat) for what, ask in refusals(subject).items()}
    finally:
        worlds.close()
    for what, (seconds, refused) in sorted(times.items(), key=lambda entry: entry[1]):
        print(f"{seconds:.3f} s, {refused} of {LAYOUT.tp} ranks refuse: {what}")


if __name__ == "__main__":
    main()

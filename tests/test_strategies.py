"""The strategies reach every class they are for, and what fails shrinks to something small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from fixtures.cases.decode import DecodeCase
from fixtures.cases.engine import EngineCase
from fixtures.cases.linear import LinearCase
from fixtures.cases.merge import MergeCase
from fixtures.cases.overrides import OverrideCase
from fixtures.model.engine import Runner
from fixtures.model.kernels import Widths
from fixtures.model.layout import Layout
from fixtures.model.numbers import Pattern
from fixtures.model.selection import Selection
from fixtures.strategies.decode import (
    decode_cases,
    fp8_caches,
    minimal_decode_cases,
    wide_decode_cases,
    workspace_cases,
)
from fixtures.strategies.engine import engine_cases
from fixtures.strategies.layouts import INTERLEAVES, covering, layouts
from fixtures.strategies.linear import linear_cases
from fixtures.strategies.merge import merge_cases
from fixtures.strategies.numbers import DTYPES
from fixtures.strategies.overrides import override_cases
from fixtures.subjects.vllm.kernel_limits import ON_HOPPER

SEARCH = settings(max_examples=2_000, derandomize=True, database=None, deadline=None)
REACH = settings(SEARCH, phases=[Phase.generate])
ALWAYS = settings(SEARCH, max_examples=200)

LAYOUTS: dict[str, Callable[[Layout], bool]] = {
    "one rank": lambda lay: lay.tp == 1,
    "no DCP": lambda lay: lay.tp > 1 and lay.dcp == 1,
    "one group of every rank": lambda lay: lay.tp == lay.dcp > 1,
    "several groups": lambda lay: 1 < lay.dcp < lay.tp,
    "group size not a power of two": lambda lay: lay.dcp in (3, 6),
    "more groups than ranks in each": lambda lay: 1 < lay.dcp < lay.tp // lay.dcp,
}
for _interleave in INTERLEAVES:
    LAYOUTS[f"interleave {_interleave}"] = partial(
        lambda size, lay: lay.interleave == size, _interleave
    )

LINEARS: dict[str, Callable[[LinearCase], bool]] = {
    "bias": lambda case: case.bias,
    "no bias": lambda case: not case.bias,
    "one head a rank": lambda case: case.num_heads == case.layout.tp,
    "odd head dim": lambda case: case.head_dim % 2 == 1 and case.head_dim > 1,
    "one row": lambda case: case.rows == 1,
}
for _pattern in Pattern:
    LINEARS[_pattern.value] = partial(lambda pattern, case: case.data.pattern is pattern, _pattern)
for _dtype in DTYPES:
    LINEARS[_dtype] = partial(lambda dtype, case: case.dtype == dtype, _dtype)


def _local_lengths(case: DecodeCase) -> list[int]:
    return [
        len(case.layout.tokens_of(rank, request.seq_len))
        for request in case.batch.decodes
        for rank in range(case.layout.dcp)
    ]


DECODES: dict[str, Callable[[DecodeCase], bool]] = {
    "a sequence of one token": lambda case: any(r.seq_len == 1 for r in case.batch.decodes),
    "a batch of one": lambda case: len(case.batch.decodes) == 1,
    "a rank without keys": lambda case: 0 in _local_lengths(case),
    "every rank with keys": lambda case: case.layout.dcp > 1 and 0 not in _local_lengths(case),
    "past three rounds of the interleave": lambda case: any(
        r.seq_len > 3 * case.layout.dcp * case.layout.interleave for r in case.batch.decodes
    ),
    "a length at an interleave boundary": lambda case: (
        case.layout.interleave > 1
        and any(r.seq_len % case.layout.interleave == 0 for r in case.batch.decodes)
    ),
    "a length one past an interleave boundary": lambda case: (
        case.layout.interleave > 1
        and any(r.seq_len % case.layout.interleave == 1 for r in case.batch.decodes)
    ),
    "several blocks": lambda case: max(_local_lengths(case)) > case.block_size,
    "one head a rank": lambda case: case.dims.num_heads == case.layout.tp,
    "an LSE to base 2": lambda case: case.partials.base_2,
    "empty shards that nobody wrote": lambda case: case.partials.unwritten,
    "tiny numbers": lambda case: case.data.pattern is Pattern.TINY,
    "large numbers": lambda case: case.data.pattern is Pattern.LARGE,
    "as many rows as heads never needed": lambda case: case.batch.num_tokens != case.dims.num_heads,
}

MERGES: dict[str, Callable[[MergeCase], bool]] = {
    "a row without any keys": lambda case: () in case.owners,
    "a rank without keys": lambda case: any(
        row and set(row) != set(range(case.layout.dcp)) for row in case.owners
    ),
    "every rank with keys": lambda case: any(
        set(row) == set(range(case.layout.dcp)) for row in case.owners
    ),
    "all keys on the last rank": lambda case: any(
        row and set(row) == {case.layout.dcp - 1} for row in case.owners
    ),
}

ENGINES: dict[str, Callable[[EngineCase], bool]] = {
    "several groups": lambda case: 1 < case.layout.dcp < case.layout.tp,
    "no DCP": lambda case: case.layout.dcp == 1,
    "scheduled ahead": lambda case: case.serving.async_scheduling,
    "requests that end apart": lambda case: len({counts.new for counts in case.rounds[0]}) > 1,
    "interleave": lambda case: case.layout.interleave > 1,
    "query LoRA": lambda case: case.model.q_lora,
    "model runner V1": lambda case: case.serving.runner is Runner.V1,
    "model runner V2": lambda case: case.serving.runner is Runner.V2,
    "merged by all-to-all": lambda case: case.serving.transport == "a2a",
    "switched in the configuration": lambda case: case.by_field,
    "a prefix to use again": lambda case: (
        case.serving.prefix_caching
        and len(case.rounds) == 2
        and min(max(counts.shared for counts in asked) for asked in case.rounds)
        >= case.serving.block_size * case.layout.dcp
    ),
    "a cache too small for the requests of a step": lambda case: (
        sum(
            -(-counts.total // (case.serving.block_size * case.layout.dcp))
            for counts in case.rounds[0][: case.serving.max_num_seqs]
        )
        >= case.serving.num_blocks
    ),
    "a prompt in chunks": lambda case: any(
        counts.prompt > case.serving.max_num_batched_tokens for counts in case.rounds[0]
    ),
    "requests that wait": lambda case: len(case.rounds[0]) > case.serving.max_num_seqs,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_reach(name: str) -> None:
    find(layouts(interleaves=INTERLEAVES), LAYOUTS[name], settings=REACH)


@pytest.mark.parametrize("name", LINEARS)
def test_linears_reach(name: str) -> None:
    find(linear_cases(), LINEARS[name], settings=REACH)


@pytest.mark.parametrize("name", DECODES)
def test_decode_cases_reach(name: str) -> None:
    find(decode_cases(), DECODES[name], settings=REACH)


@pytest.mark.parametrize("most", [20, 32, 64, 128, 256, 512])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_wide_decode_cases_reach_past(most: int, dtype: str) -> None:
    find(
        wide_decode_cases(),
        lambda case: case.batch.num_tokens > most and case.dtype == dtype,
        settings=REACH,
    )


@pytest.mark.parametrize("name", ENGINES)
def test_engine_cases_reach(name: str) -> None:
    find(engine_cases(), ENGINES[name], settings=REACH)


@pytest.mark.parametrize("name", MERGES)
def test_merge_cases_reach(name: str) -> None:
    find(merge_cases(), MERGES[name], settings=REACH)


@ALWAYS
@given(case=decode_cases(), linear=linear_cases())
def test_extents_differ_from_each_other(case: DecodeCase, linear: LinearCase) -> None:
    dims = case.dims
    extents = [dims.qk_nope_head_dim, dims.kv_lora_rank, dims.v_head_dim, dims.q_width]
    assert len(set(extents)) == len(extents)
    assert linear.head_dim != linear.input_size


@ALWAYS
@given(override=override_cases())
def test_every_override_is_possible(override: OverrideCase) -> None:
    assert len(override.shards) == override.linear.layout.tp
    for a, s in override.shards:
        assert 0 <= a < s
        assert override.linear.output_size % s == 0


def test_a_failing_layout_shrinks_to_the_smallest_one() -> None:
    smallest = find(layouts(min_dcp=2), lambda lay: lay.tp > lay.dcp, settings=SEARCH)
    assert smallest == Layout(4, 2)


def test_a_failing_decode_case_shrinks_to_one_short_request() -> None:
    case = find(
        decode_cases(),
        lambda c: any(r.seq_len >= 3 for r in c.batch.decodes),
        settings=SEARCH,
    )
    assert case.layout == Layout(1)
    assert [r.seq_len for r in case.batch.decodes] == [3]
    assert case.dims.num_heads == 1
    assert case.data.pattern is Pattern.NORMAL


SERVED = Selection(sizes=range(1, 5), reason="on a GPU", kernels=ON_HOPPER)
STEPS = {
    "decodes": decode_cases(decodes=(1, 3), max_query_len=4),
    "prefills": decode_cases(prefills=(1, 2)),
    "float8": decode_cases(fp8=fp8_caches()),
    "one head": minimal_decode_cases(),
    "workspace": workspace_cases(),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_within_what_the_runs_kernels_take(name: str) -> None:
    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=STEPS[name])
    def check(case: DecodeCase) -> None:
        (kernels,) = (one for one in ON_HOPPER if one.name == case.kernels)
        dims, layout = case.dims, case.layout
        assert case.dtype in kernels.dtypes
        assert case.block_size in kernels.block_sizes
        assert case.block_size % layout.interleave == 0
        widths = (dims.qk_nope_head_dim, dims.qk_rope_head_dim, dims.kv_lora_rank, dims.v_head_dim)
        assert Widths(*widths) in kernels.widths
        longest = kernels.longest(layout)
        assert all(request.query_len <= longest for request in case.batch.decodes)
        assert all(request.query_len > longest for request in case.batch.prefills)
        if kernels.uniform:
            assert len({request.query_len for request in case.batch.decodes}) <= 1
        assert case.fp8 is None or case.fp8.quantized_query is kernels.quantized_query

    with covering(SERVED):
        check()

"""DEC: the MLA layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fixtures.cases.decode import DecodeCase
from fixtures.cases.module import ModuleCase
from fixtures.model.dims import Batch, MLADims, Request
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data, Pattern
from fixtures.oracle import backend as backend_oracle
from fixtures.oracle import check
from fixtures.oracle import decode as oracle
from fixtures.oracle import module as module_oracle
from fixtures.oracle.exchange import gathered_patterns
from fixtures.oracle.ledger import assert_saves
from fixtures.programs import backend, compiled, decode, derived, exchange, module, storage
from fixtures.ranks.api import Collective
from fixtures.strategies.decode import (
    decode_cases,
    fp8_caches,
    minimal_decode_cases,
    small_workspace_cases,
    workspace_cases,
)
from fixtures.strategies.layouts import INTERLEAVES, layouts
from fixtures.strategies.module import module_cases
from fixtures.strategies.numbers import DTYPES
from fixtures.subjects import registry
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.both_paths import check_paths
from properties.contract import clause

REPLICABLE = layouts(min_dcp=2, interleaves=INTERLEAVES)


def _check_both_paths(subject: Subject, case: DecodeCase) -> None:
    check_paths(case, subject.run(case.layout, decode.both_paths, case), oracle.expected(case))


@clause("DEC-1", "DEC-2", needs=(Capability.REPLICATED_DECODE,))
@given(case=decode_cases(layout=REPLICABLE, dtypes=DTYPES))
def test_replicated_path_equals_gather_path_and_the_oracle(
    subject: Subject, case: DecodeCase
) -> None:
    _check_both_paths(subject, case)


@clause("DEC-2", needs=(Capability.GATHER_DECODE,))
@given(case=decode_cases())
def test_gather_path_equals_the_oracle(subject: Subject, case: DecodeCase) -> None:
    steps = subject.run(case.layout, decode.both_paths, case, replicated=False)
    check_paths(case, steps, oracle.expected(case))


@clause("DEC-3", needs=(Capability.REPLICATED_DECODE,))
@given(case=decode_cases(layout=REPLICABLE, dtypes=DTYPES))
def test_group_W_UK_T_is_the_ranks_own_in_rank_order(subject: Subject, case: DecodeCase) -> None:
    by_rank = subject.run(case.layout, derived.derived_weights, case)
    for rank, weights in enumerate(by_rank):
        check.bitwise(weights.on_W_UK_T, weights.off_W_UK_T, f"W_UK_T of rank {rank}, on")
        check.bitwise(weights.on_W_UV, weights.off_W_UV, f"W_UV of rank {rank}, on")
        expected = torch.cat(
            [by_rank[member].off_W_UK_T for member in case.layout.dcp_group_of(rank)]
        )
        assert weights.group_W_UK_T is not None
        check.bitwise(weights.group_W_UK_T, expected, f"W_UK_T_dcp_qrep of rank {rank}")


# Groups of one rank sum over nobody, and the switch has nothing to replicate.
ONE_RANK = ModuleCase(
    layout=Layout(1, 1),
    dims=MLADims(2, 3, 4, 7, 5, 6),
    batch=Batch(decodes=(Request(5),), prefills=(Request(3, 2),)),
    block_size=2,
    q_lora=True,
    llama_4_scaling=False,
    data=Data(7),
)


@clause(
    "DEC-4", "DEC-5", needs=(Capability.REPLICATED_DECODE, Capability.PREFILL, Capability.SWITCH)
)
@given(case=module_cases())
@example(case=ONE_RANK)
def test_a_module_with_rotary_embedding_gives_the_same_on_off_and_by_the_oracle(
    subject: Subject, case: ModuleCase
) -> None:
    expected, live = module_oracle.expected(case), case.batch.num_tokens
    for rank, (off, on) in enumerate(subject.run(case.layout, module.both_steps, case)):
        check.bounded(off.output[:live], expected, f"gather path on rank {rank}")
        check.bounded(on.output[:live], expected, f"replicated path on rank {rank}")
        check.agree(on.output[:live], off.output[:live], expected, f"both paths on rank {rank}")
        check.bitwise(on.cache, off.cache, f"KV cache of rank {rank} after the step")


@clause("DEC-5", needs=(Capability.LOCAL_PREFILL_PROJECTION,))
@given(case=module_cases(min_prefills=1))
def test_prefill_tokens_are_projected_to_the_local_heads_alone(
    subject: Subject, case: ModuleCase
) -> None:
    decodes = case.batch.num_decode_tokens
    prefills = case.batch.num_tokens - decodes
    plain = case.dims.num_heads // case.layout.tp * case.dims.qk_head_dim * case.dims.q_width
    for rank, (off, on) in enumerate(subject.run(case.layout, module.both_steps, case)):
        assert off.projected == plain * case.batch.num_rows
        # Rows behind the live ones follow the prefills.
        expected = plain * (decodes * case.layout.dcp + prefills + case.batch.padding)
        assert on.projected == expected, (
            f"rank {rank} multiplies {on.projected} times to project the query, but should "
            f"{expected} times"
        )


@clause("DEC-5", needs=(Capability.REPLICATED_DECODE, Capability.PREFILL))
@given(case=decode_cases(layout=REPLICABLE, decodes=(0, 2), prefills=(1, 3), dtypes=DTYPES))
@example(case=pinned.CONTEXTS_IN_CHUNKS)
@example(case=pinned.CHUNKS_WITHOUT_KEYS)
def test_prefill_rows_take_the_local_heads_and_decode_rows_the_groups(
    subject: Subject, case: DecodeCase
) -> None:
    _check_both_paths(subject, case)


@clause("DEC-6", needs=(Capability.REPLICATED_DECODE, Capability.MULTI_TOKEN_DECODE))
@given(case=decode_cases(layout=REPLICABLE, decodes=(1, 3), max_query_len=5))
@example(case=pinned.BEFORE_THE_FIRST_LOCAL_KEY)
@example(case=pinned.RAGGED_QUERIES)
@example(case=pinned.NEWEST_KEYS_ON_EVERY_RANK)
def test_each_of_several_tokens_attends_the_keys_up_to_its_own_position(
    subject: Subject, case: DecodeCase
) -> None:
    _check_both_paths(subject, case)


@clause("DEC-7", needs=(Capability.REPLICATED_DECODE,))
@given(case=decode_cases(layout=REPLICABLE, decodes=(1, 2), max_query_len=2, paddings=(1, 2, 5)))
@example(case=pinned.ONE_ROW_OF_PADDING)
def test_padding_rows_reach_no_live_row(subject: Subject, case: DecodeCase) -> None:
    live = case.batch.num_tokens
    by_rank = subject.run(case.layout, decode.padded_paths, case)
    check_paths(case, [poisoned for _, poisoned in by_rank], oracle.expected(case))
    for rank, (zeros, poisoned) in enumerate(by_rank):
        for name in ("gather", "replicated"):
            check.bitwise(
                getattr(poisoned, name).output[:live],
                getattr(zeros, name).output[:live],
                f"live rows of the {name} path on rank {rank}, padded with NaN instead of zeros",
            )


@clause("DEC-8", needs=(Capability.REPLICATED_DECODE,))
@given(case=decode_cases(layout=REPLICABLE, dtypes=DTYPES))
def test_processing_new_weights_writes_them_where_the_old_ones_were(
    subject: Subject, case: DecodeCase
) -> None:
    whole = oracle.expected(case, generation=1)
    for on in (False, True):
        path = "replicated" if on else "gather"
        for rank, reload in enumerate(subject.run(case.layout, derived.reloaded, case, on, 1)):
            assert "W_UK_T_dcp_qrep" in reload.places or not on
            moved = [n for n, place in reload.places.items() if reload.places_after[n] != place]
            assert not moved, (
                f"derived weights {moved} of the {path} path on rank {rank} moved from "
                f"{reload.places} to {reload.places_after}"
            )
            for name, value in reload.fresh.items():
                check.bitwise(
                    reload.captured[name],
                    value,
                    f"{name} of the {path} path on rank {rank} after a reload",
                )
            check.bounded(
                reload.step.output,
                whole[:, oracle.columns_of(case, rank)],
                f"{path} path on rank {rank} after a reload",
            )


@clause("DEC-10", needs=(Capability.REPLICATED_DECODE,))
@given(case=minimal_decode_cases())
def test_one_head_a_rank_and_one_key_are_ordinary(subject: Subject, case: DecodeCase) -> None:
    _check_both_paths(subject, case)


FP8_CASES = decode_cases(
    layout=REPLICABLE,
    decodes=(1, 3),
    max_query_len=2,
    prefills=(0, 1),
    dtypes=DTYPES,
    patterns=(Pattern.NORMAL, Pattern.LARGE),
    fp8=fp8_caches(),
)


def _served(subject: Subject, case: DecodeCase) -> DecodeCase:
    """``case``, without its prefills where the subject has none."""
    if Capability.PREFILL not in subject.lacks:
        return case
    return dataclasses.replace(case, batch=dataclasses.replace(case.batch, prefills=()))


@clause("DEC-11", needs=(Capability.REPLICATED_DECODE, Capability.FP8_CACHE))
@given(case=FP8_CASES)
def test_a_quantized_cache_is_attended_by_its_dequantized_values(
    subject: Subject, case: DecodeCase
) -> None:
    _check_both_paths(subject, _served(subject, case))


@clause("DEC-11", needs=(Capability.REPLICATED_DECODE, Capability.FP8_CACHE))
@given(case=FP8_CASES)
def test_the_backend_is_handed_the_groups_query_rounded_by_its_scale(
    subject: Subject, case: DecodeCase
) -> None:
    # A softmax forgives most of what is wrong with its scores; the query itself does not.
    case = _served(subject, case)
    for rank, queries in enumerate(subject.run(case.layout, backend.handed_queries, case)):
        expected = backend_oracle.expected_queries(case, rank)
        for path, query in zip(("gather", "replicated"), queries, strict=True):
            check.bounded(query, expected, f"query on the {path} path of rank {rank}")


@clause("DEC-11", "COM-1", needs=(Capability.REPLICATED_DECODE, Capability.FP8_CACHE))
@given(case=FP8_CASES)
def test_a_quantized_query_crosses_the_group_in_one_byte_a_number(
    subject: Subject, case: DecodeCase
) -> None:
    case = _served(subject, case)
    heads = case.dims.num_heads // case.layout.tp
    assert case.fp8 is not None
    for rank, paths in enumerate(subject.run(case.layout, decode.both_paths, case)):
        assert paths.replicated is not None
        query = Collective(
            "all_gather",
            case.layout.dcp_group_of(rank),
            (case.batch.num_decode_tokens, heads, case.dims.kv_width),
            "torch.uint8" if case.fp8.quantized_query else str(case.torch_dtype),
        )
        assert_saves(paths.replicated.ledger, paths.gather.ledger, query, f"rank {rank}")


@clause("DEC-11", needs=(Capability.FP8_CACHE,))
@given(layout=layouts(min_dcp=2), dim=st.integers(-2, 1))
def test_every_float8_pattern_crosses_the_group_unchanged(
    subject: Subject, layout: Layout, dim: int
) -> None:
    for rank, gathered in enumerate(subject.run(layout, exchange.gather_float8, dim)):
        check.bitwise(gathered, gathered_patterns(layout, dim), f"bytes gathered by rank {rank}")


@clause("DEC-12", needs=(Capability.REPLICATED_DECODE, Capability.PREFILL))
@given(case=workspace_cases())
def test_contexts_below_at_and_above_the_workspace_are_attended_alike(
    subject: Subject, case: DecodeCase
) -> None:
    _check_both_paths(subject, case)


@clause("DEC-12", needs=(Capability.SMALL_WORKSPACE_REFUSED,))
@given(case=workspace_cases())
def test_what_is_gathered_of_a_context_fits_the_workspace(
    subject: Subject, case: DecodeCase
) -> None:
    # Without decodes, contexts are all that is gathered.
    case = dataclasses.replace(case, batch=dataclasses.replace(case.batch, decodes=()))
    steps = subject.run(case.layout, decode.both_paths, case, replicated=False)
    for rank, paths in enumerate(steps):
        for gather in paths.gather.ledger:
            rows = gather.shape[-2] * case.layout.dcp
            assert rows <= case.context_rows, (
                f"rank {rank} gathers {rows} rows into a workspace of {case.context_rows}"
            )


@clause("DEC-12", needs=(Capability.SMALL_WORKSPACE_REFUSED,))
@given(case=small_workspace_cases())
def test_a_workspace_that_holds_no_round_of_the_interleave_is_refused(
    subject: Subject, case: DecodeCase
) -> None:
    rows, stride = case.context_rows, case.layout.dcp * case.layout.interleave
    for message in subject.run(case.layout, storage.refusal_of_metadata, case):
        assert message is not None, f"{rows} rows for rounds of {stride} tokens are accepted"
        for named in (str(rows), str(stride), "cp_kv_cache_interleave_size"):
            assert named in message, f"the refusal does not name {named}: {message}"


@pytest.fixture(scope="module")
def process_subject(request: pytest.FixtureRequest, subject: Subject) -> Iterator[Subject]:
    """The subject on ranks that are processes: a compiled graph cannot wait as a greenlet."""
    if registry.world_kind(subject.name, request.config.getoption("world")) != "simulated":
        yield subject
        return
    loaded, worlds = registry.load(subject.name, "forked")
    yield loaded
    worlds.close()


PAIRS = module_cases(layout=layouts(tp_sizes=(2,), min_dcp=2))


@clause("DEC-9", needs=(Capability.ATTENTION_OPERATOR, Capability.PREFILL), effort=0.1)
@given(case=PAIRS)
def test_the_operator_that_carries_the_replicated_query_passes_opcheck(
    process_subject: Subject, case: ModuleCase
) -> None:
    for rank, results in enumerate(process_subject.run(case.layout, compiled.opcheck, case)):
        wrong = {test: what for test, what in results.items() if what != "SUCCESS"}
        assert results, f"rank {rank} checked no operator"
        assert not wrong, f"opcheck on rank {rank}: {wrong}"


@clause("DEC-9", needs=(Capability.COMPILED_LAYER,), effort=0.15)
@given(case=PAIRS)
@example(case=pinned.HEADS_OF_TWO_RANKS)
@example(case=pinned.PAST_THE_FIRST_CONTEXT)
def test_a_compiled_module_equals_the_eager_one(process_subject: Subject, case: ModuleCase) -> None:
    expected, live = module_oracle.expected(case), case.batch.num_tokens
    steps = process_subject.run(case.layout, compiled.eager_and_compiled, case)
    for rank, (eager, graph) in enumerate(steps):
        check.bounded(eager[:live], expected, f"eager module on rank {rank}")
        check.bounded(graph[:live], expected, f"compiled module on rank {rank}")
        check.agree(graph[:live], eager[:live], expected, f"compiled and eager, rank {rank}")

"""DEC, MRG and KVS once more: each decode backend that a subject offers on a GPU, one by one."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases.decode import DecodeCase
from fixtures.model.kernels import Kernels
from fixtures.model.layout import Layout
from fixtures.model.numbers import FP8, LN_2, Pattern
from fixtures.oracle import check
from fixtures.oracle import decode as decode_oracle
from fixtures.oracle.backend import expected_partial
from fixtures.oracle.bounds import Bounded, unit_roundoff
from fixtures.programs import backend, decode, replay
from fixtures.programs.backend import Partial
from fixtures.strategies.backends import backend_cases, replay_cases
from fixtures.strategies.decode import fp8_caches
from fixtures.strategies.layouts import layouts
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

# Whatever vLLM has for a dense MLA layer on a GPU of NVIDIA's.
BACKENDS = (
    "TRITON_MLA",
    "FLASHMLA",
    "FLASH_ATTN_MLA",
    "FLASHINFER_MLA",
    "CUTLASS_MLA",
    "TOKENSPEED_MLA",
)
SHARDED = layouts(tp_sizes=(2, 4), min_dcp=2, interleaves=(1, 2, 16))
UNINTERLEAVED = layouts(tp_sizes=(2, 4), min_dcp=2)
ALONE = st.just(Layout(1))
# A step over several ranks is captured where each has a GPU: gloo cannot be.
GRAPHED = st.sampled_from(
    [Layout(1), Layout(2)]
    + ([Layout(2, 2), Layout(2, 2, 16)] if torch.cuda.device_count() > 1 else [])
)
THIRDS = st.just(Layout(3, 3))
# Weights and outputs are rounded, each once.
ULPS = 1.5


@pytest.fixture(scope="module", params=BACKENDS)
def kernels(request: pytest.FixtureRequest, subject: Subject) -> Kernels:
    """What the kernels of a backend take, where the subject offers it."""
    name = request.param
    (refusal,) = subject.run(Layout(1), backend.refusal, name)
    if refusal:
        pytest.skip(f"{name} is not offered here: {refusal}")
    by_name = {kernels.name.upper(): kernels for kernels in subject.kernels}
    assert name in by_name, f"{name} is offered, but what its kernels take is not written down"
    return by_name[name]


def _live(partial: Partial, rows: int) -> Partial:
    return dataclasses.replace(partial, out=partial.out[:rows], lse=partial.lse[:rows])


def _check_partial(
    case: DecodeCase, partial: Partial, expected: tuple[Bounded, Bounded], where: str
) -> None:
    """Rows with keys are right; of the others the contract says nothing."""
    out, lse = expected
    seen = lse.value[:, 0].isfinite()
    check.bounded(partial.out[seen], out[seen], f"output {where}")
    if case.data.pattern is Pattern.NORMAL:
        # Of equal keys, all roundings are the same one.
        check.near(partial.out[seen], out[seen], ULPS, f"output {where}")
    if case.layout.dcp == 1:
        return
    assert partial.lse.shape == lse.value.shape, (
        f"LSE {where} has shape {tuple(partial.lse.shape)}, but the merges take rows by heads, "
        f"{tuple(lse.value.shape)}"
    )
    unit = 1.0 if partial.is_lse_base_on_e else 1 / LN_2
    # A 16-bit one is a fault of its own.
    exact = lse[seen].scaled(unit).rounded(partial.lse.dtype)
    declared = "e" if partial.is_lse_base_on_e else "2"
    check.bounded(partial.lse[seen], exact, f"LSE {where}, declared to base {declared},")


def _check_backend(subject: Subject, case: DecodeCase) -> None:
    for rank, partials in enumerate(subject.run(case.layout, backend.attend_repeatedly, case)):
        expected, rows = expected_partial(case, rank), case.batch.num_decode_tokens
        for how, partial in partials.items():
            where = f"of the shard of rank {rank}, {how}"
            _check_partial(case, _live(partial, rows), expected, where)
        seen = expected[1].value[:, 0].isfinite()
        for how in ("again", "strided"):
            what = f"output of the shard of rank {rank}, {how}"
            check.bitwise(partials[how].out[seen], partials["as it is"].out[seen], what)


@clause("MRG-2", "DEC-7", "DEC-10", needs=(Capability.DECODE_BACKENDS,))
@given(data=st.data())
def test_a_backend_attends_its_shard_alike_repeated_strided_and_beside_idle_requests(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    case = data.draw(backend_cases(kernels, SHARDED, paddings=(0, 1, 3)), label="case")
    _check_backend(subject, case)


@clause("DEC-7", needs=(Capability.DECODE_BACKENDS,), effort=0.7)
@given(data=st.data())
def test_a_backend_reads_no_stale_key_behind_a_sequence(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    # Blocks are given to another request as they are; what the last one left may be NaN.
    case = data.draw(backend_cases(kernels, SHARDED), label="case")
    case = dataclasses.replace(case, finite_tails=False)
    for rank, partial in enumerate(subject.run(case.layout, backend.attend_shard, case)):
        out, lse = expected_partial(case, rank)
        seen = lse.value[:, 0].isfinite()
        check.bounded(partial.out[seen], out[seen], f"output of the shard of rank {rank}")


@clause("DEC-6", needs=(Capability.DECODE_BACKENDS,), effort=0.7)
@given(data=st.data())
def test_a_backend_shows_each_of_several_tokens_the_keys_up_to_its_own(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    layout = UNINTERLEAVED if kernels.longest_decode_dcp > 1 else ALONE
    case = data.draw(backend_cases(kernels, layout, max_query_len=6), label="case")
    for rank, partial in enumerate(subject.run(case.layout, backend.attend_shard, case)):
        where = f"of the shard of rank {rank}"
        _check_partial(case, partial, expected_partial(case, rank), where)


@clause("MRG-5", needs=(Capability.DECODE_BACKENDS,), effort=0.1)
@given(data=st.data())
def test_a_backend_returns_its_lse_in_float32(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    case = data.draw(backend_cases(kernels, SHARDED), label="case")
    for rank, partial in enumerate(subject.run(case.layout, backend.attend_shard, case)):
        assert partial.lse.dtype == torch.float32, (
            f"the LSE of rank {rank} is {partial.lse.dtype}, but should be torch.float32"
        )


@clause("DEC-11", needs=(Capability.DECODE_BACKENDS,), effort=0.7)
@given(data=st.data())
def test_a_backend_attends_the_dequantized_values_of_a_float8_cache(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    if kernels.quantized_query is None:
        pytest.skip(f"{kernels.name} takes no float8 cache")
    case = data.draw(backend_cases(kernels, SHARDED), label="case")
    fp8 = dataclasses.replace(
        data.draw(fp8_caches(), label="fp8"), quantized_query=kernels.quantized_query
    )
    case = dataclasses.replace(case, fp8=fp8)
    for rank, partial in enumerate(subject.run(case.layout, backend.attend_shard, case)):
        out, lse = expected_partial(case, rank)
        seen = lse.value[:, 0].isfinite()
        # Weights may be rounded to float8 as well, before they weigh the values.
        ulps = ULPS * unit_roundoff(FP8) / unit_roundoff(partial.out.dtype)
        check.near(partial.out[seen], out[seen], ulps, f"output of the shard of rank {rank}")
        assert partial.out.dtype == case.torch_dtype, (
            f"output of the shard of rank {rank} is {partial.out.dtype}, "
            f"but should be {case.torch_dtype}"
        )
        unit = 1.0 if partial.is_lse_base_on_e else 1 / LN_2
        exact = lse[seen].scaled(unit).rounded(partial.lse.dtype)
        check.bounded(partial.lse[seen], exact, f"LSE of the shard of rank {rank}")


@clause("DEC-1", "DEC-2", needs=(Capability.DECODE_BACKENDS, Capability.REPLICATED_DECODE))
@given(data=st.data())
def test_a_layer_decodes_both_paths_through_a_backend(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    longest = kernels.longest_decode_dcp
    case = data.draw(
        backend_cases(kernels, SHARDED, max_query_len=min(4, longest), paddings=(0, 2)),
        label="case",
    )
    whole, live = decode_oracle.expected(case), case.batch.num_tokens
    for rank, paths in enumerate(subject.run(case.layout, decode.both_paths, case)):
        expected = whole[:, decode_oracle.columns_of(case, rank)]
        assert paths.replicated is not None
        for name, step in (("gather", paths.gather), ("replicated", paths.replicated)):
            check.bounded(step.output[:live], expected, f"{name} path on rank {rank}")


@clause("DEC-7", needs=(Capability.DECODE_BACKENDS, Capability.REPLICATED_DECODE))
@given(data=st.data(), replicated=st.booleans())
def test_idle_requests_of_a_padded_batch_reach_no_live_row(
    subject: Subject, kernels: Kernels, data: st.DataObject, replicated: bool
) -> None:
    case = data.draw(backend_cases(kernels, SHARDED, paddings=(1, 2, 5)), label="case")
    whole, live = decode_oracle.expected(case), case.batch.num_tokens
    steps = subject.run(case.layout, replay.step_with_idle_requests, case, replicated)
    for rank, output in enumerate(steps):
        expected = whole[:, decode_oracle.columns_of(case, rank)]
        check.bounded(output[:live], expected, f"live rows on rank {rank}")


@clause("DEC-7", "DEC-8", needs=(Capability.CUDA_GRAPHS, Capability.REPLICATED_DECODE), effort=0.7)
@given(data=st.data())
def test_a_captured_step_serves_fewer_requests_and_other_weights(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    case = data.draw(replay_cases(kernels, GRAPHED), label="case")
    layout = case.step.layout
    for replicated in (False, True) if layout.dcp > 1 else (False,):
        by_rank = subject.run(layout, replay.replayed, case, replicated)
        for index, live in enumerate(case.live):
            whole = decode_oracle.expected(case.replay(index), case.generation(index))
            for rank, outputs in enumerate(by_rank):
                path = "replicated" if replicated else "gather"
                check.bounded(
                    outputs[index][:live],
                    whole[:, decode_oracle.columns_of(case.step, rank)],
                    f"replay {index} of the {path} path on rank {rank}",
                )


@clause("DEC-10", needs=(Capability.DECODE_BACKENDS, Capability.REPLICATED_DECODE), effort=0.1)
@given(data=st.data())
def test_a_backend_decodes_for_groups_that_are_no_power_of_two(
    subject: Subject, kernels: Kernels, data: st.DataObject
) -> None:
    case = data.draw(backend_cases(kernels, THIRDS), label="case")
    whole, live = decode_oracle.expected(case), case.batch.num_tokens
    for rank, paths in enumerate(subject.run(case.layout, decode.both_paths, case)):
        expected = whole[:, decode_oracle.columns_of(case, rank)]
        check.bounded(paths.gather.output[:live], expected, f"gather path on rank {rank}")

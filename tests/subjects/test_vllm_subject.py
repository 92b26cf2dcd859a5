"""The vllm subject calls vLLM itself, and its stand-ins for GPU kernels are right."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from fixtures.cases.decode import DecodeCase
from fixtures.cases.storage import SlotsCase
from fixtures.model.dims import Batch, Request
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data
from fixtures.oracle import decode as oracle
from fixtures.oracle import storage as storage_oracle
from fixtures.programs import decode, storage
from fixtures.subjects import registry
from fixtures.subjects.subject import Capability, Subject, SubjectError
from fixtures.subjects.vllm import subject as vllm
from tests.subjects import vllm_programs

ROOT = Path(__file__).parents[2]
installed = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"
)


@pytest.fixture(scope="module")
def subject() -> Iterator[Subject]:
    loaded, worlds = registry.load("vllm", None)
    yield loaded
    worlds.close()


@pytest.fixture
def vllm_version(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    def version(name: str) -> str:
        if request.param is None:
            raise metadata.PackageNotFoundError(name)
        return str(request.param)

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    ("vllm_version", "says"),
    [
        (None, "not installed"),
        ("0.25.1", r"0\.25\.1 is installed, but these fixtures drive 0\.26\.0 and later"),
        ("dev", "not a version"),
    ],
    indirect=["vllm_version"],
)
@pytest.mark.usefixtures("vllm_version")
def test_what_cannot_be_judged_is_refused_in_words(says: str) -> None:
    with pytest.raises(SubjectError, match=says):
        vllm.installed_version()


@pytest.mark.parametrize(
    "vllm_version",
    ["0.26.0", "0.32.0+cpu", "0.33.1rc0.dev15+g1a2b3c4"],
    indirect=["vllm_version"],
)
@pytest.mark.usefixtures("vllm_version")
def test_builds_and_what_comes_after_the_releases_are_accepted() -> None:
    assert vllm.installed_version() >= OLDEST


OLDEST = Version("0.26.0")


def test_older_releases_lack_what_came_later_alone() -> None:
    always = {
        Capability.LOCAL_PREFILL_PROJECTION,
        Capability.GROUP_ADAPTERS,
        Capability.SMALL_WORKSPACE_REFUSED,
        Capability.COMPILED_LAYER,
    }
    before_29 = {
        Capability.PREFILL,
        Capability.PREFILL_BACKENDS,
        Capability.BUILDERS,
        Capability.CONFIG_FIELD,
        Capability.ENGINE,
    }
    before_28 = before_29 | {Capability.ADAPTERS, Capability.EMPTY_SHARD_MASK}
    for version, lacking in (
        ("0.32.0", set()),
        ("0.29.0", set()),
        ("0.28.0", before_29),
        ("0.27.1", before_28),
    ):
        assert set(vllm.lacking_parts(Version(version))) == always | lacking
    assert set(vllm.lacking_parts(OLDEST)) == always | before_28 | {
        Capability.TP_OVERRIDES,
        Capability.GROUP_LINEAR,
        Capability.REPLICATED_DECODE,
        Capability.ATTENTION_OPERATOR,
        Capability.COMPILE_PASSES,
        Capability.SWITCH,
    }


@installed
def test_importing_the_rank_side_prints_nothing() -> None:
    command = [sys.executable, "-c", "import fixtures.subjects.vllm.rank.adapter"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@installed
def test_classes_and_groups_are_vllms_own(subject: Subject) -> None:
    layout = Layout(tp=4, dcp=2)
    for rank, origins in enumerate(subject.run(layout, vllm_programs.origins)):
        assert origins.classes == (
            "vllm.model_executor.layers.linear.ColumnParallelLinear",
            "vllm.model_executor.layers.linear.DCPGroupColumnParallelLinear",
            "vllm.distributed.parallel_state.GroupCoordinator",
            "vllm.model_executor.layers.attention.mla_attention.MLAAttention",
            "vllm.model_executor.layers.attention.mla_attention.MLACommonMetadata",
        )
        assert origins.group == layout.dcp_group_of(rank)


@installed
def test_what_a_class_says_while_it_is_built_is_heard_each_time(subject: Subject) -> None:
    first, second = subject.run(Layout(1, 1), vllm_programs.warnings_of_a_class, 2)[0]
    assert "SarvamMLAAttention ignores it" in first
    assert "SarvamMLAAttention ignores it" in second


@installed
def test_each_program_finds_the_groups_of_its_layout(subject: Subject) -> None:
    for dcp in (1, 4, 2, 4, 1):
        layout = Layout(tp=4, dcp=dcp)
        groups = subject.run(layout, vllm_programs.group_ranks)
        assert groups == [layout.dcp_group_of(rank) for rank in range(4)]


def _case(layout: Layout, batch: Batch, dtype: str = "float32") -> DecodeCase:
    return DecodeCase(
        layout=layout,
        dims=vllm_programs.DIMS,
        batch=batch,
        block_size=4,
        dtype=dtype,
        data=Data(seed=3),
    )


ONE_TOKEN = Batch(decodes=(Request(1), Request(7)))
SEVERAL_TOKENS = Batch(decodes=(Request(1), Request(7, 3), Request(37, 4)), padding=2)


@installed
@pytest.mark.parametrize(
    ("layout", "batch", "kernels"),
    [
        (Layout(1), SEVERAL_TOKENS, "torch"),
        (Layout(4, 2, 2), SEVERAL_TOKENS, "torch"),
        (Layout(4, 4, 4), SEVERAL_TOKENS, "torch"),
        (Layout(3, 3), SEVERAL_TOKENS, "torch"),
        (Layout(2, 2), ONE_TOKEN, "torch"),
        (Layout(2, 2), ONE_TOKEN, "triton_mla"),
    ],
    ids=str,
)
def test_both_paths_match_the_oracle(
    subject: Subject, layout: Layout, batch: Batch, kernels: str
) -> None:
    case = dataclasses.replace(_case(layout, batch), kernels=kernels)
    expected, live = oracle.expected(case), batch.num_tokens
    for rank, paths in enumerate(subject.run(layout, decode.both_paths, case)):
        mine = expected[:, oracle.columns_of(case, rank)]
        assert paths.replicated is not None
        gather, replicated = paths.gather.output[:live], paths.replicated.output[:live]
        assert torch.equal(gather, replicated)
        assert ((gather.double() - mine.value).abs() <= mine.error).all()


@installed
@pytest.mark.parametrize("kernels", ["torch", "triton"])
@pytest.mark.parametrize("transport", ["ag_rs", "ag_ar", "a2a"])
def test_merges_ignore_an_empty_shard(subject: Subject, transport: str, kernels: str) -> None:
    program = vllm_programs.merge_with_empty_shard
    for out, lse, expected in subject.run(Layout(2, 2), program, transport, kernels):
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)
        assert lse.isfinite().all()


@installed
@pytest.mark.parametrize("layout", [Layout(2, 1), Layout(2, 2), Layout(2, 2, 4)], ids=str)
def test_slots_follow_the_storage_rule(subject: Subject, layout: Layout) -> None:
    case = SlotsCase(layout, seq_len=15, blocks=(5, 3, 9, 4), block_size=4)
    for rank, slots in enumerate(subject.run(layout, storage.slots, case)):
        assert slots == storage_oracle.slots(case, rank)


@installed
@pytest.mark.parametrize("q_lora", [False, True])
def test_a_whole_deepseek_attention_serves_alike_on_every_path(
    subject: Subject, q_lora: bool
) -> None:
    (alone,) = subject.run(Layout(1), vllm_programs.serve, None, q_lora)
    layout = Layout(2, 2, 2)
    off = subject.run(layout, vllm_programs.serve, "0", q_lora)
    on = subject.run(layout, vllm_programs.serve, "1", q_lora)
    query = (4, vllm_programs.DIMS.num_heads // 2, vllm_programs.DIMS.kv_width)
    for rank in range(2):
        assert (off[rank].group_size, on[rank].group_size) == (1, 2)
        assert off[rank].gathers.count(query) == 1
        assert query not in on[rank].gathers
        outputs = zip(alone.outputs, off[rank].outputs, on[rank].outputs, strict=True)
        for expected, gather, replicated in outputs:
            torch.testing.assert_close(gather, expected, rtol=1e-4, atol=1e-5)
            assert torch.equal(gather, replicated)

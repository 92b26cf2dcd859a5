"""What scripts show, and what is said where there is none."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.cases.decode import DecodeCase
from fixtures.cases.linear import LinearCase
from fixtures.cases.merge import EmptyShard, MergeCase
from fixtures.cases.storage import SlotsCase
from fixtures.model.dims import Batch, MLADims, Request
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data, Pattern
from fixtures.model.quantization import Quantization, Scheme
from fixtures.programs import decode, group_linear, linear, merge, storage
from fixtures.subjects.subject import Subject
from gate.examples import tolerate_known_failures
from gate.scripts.calls import Call, recorded
from gate.scripts.files import scripts_in, write
from gate.scripts.numbers import expression

TEST = "properties/test_x.py::test_y"
LAYOUT = Layout(2, 2, 2)
LINEAR = LinearCase(LAYOUT, 5, 3, 4, True, "float16", 1, Data(7))
MERGE = MergeCase(LAYOUT, 2, 5, ((0, 1, 1), (), (0,)), "bfloat16", Data(3), empty=EmptyShard.NAN)
DECODE = DecodeCase(
    LAYOUT,
    MLADims(4, 3, 4, 5, 6, 7),
    Batch((Request(1), Request(9), Request(5))),
    4,
    "float32",
    Data(2),
    transport="a2a",
)
# On one of its ranks the two paths are a rounding apart.
ROUNDED = DecodeCase(
    Layout(4, 2),
    MLADims(4, 1, 4, 3, 4, 5),
    Batch((Request(2),)),
    1,
    "float32",
    Data(0),
)
SLOTS = SlotsCase(LAYOUT, 5, (1,), 4)
needs_vllm = pytest.mark.skipif(
    not any(metadata.distributions(name="vllm")), reason="vLLM is not installed"
)


class _NoRanks:
    """Source of worlds in which a program runs nowhere."""

    def get(self, size: int) -> Any:
        return SimpleNamespace(run=lambda *args: [])


def _subject(name: str = "vllm") -> Subject:
    return Subject(name, "0.32.0", ("nothing", "Nothing"), _NoRanks())


def _run(
    tmp_path: Path, call: Call, edit: tuple[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script of ``call`` as a stranger would, with ``edit`` (old, new)."""
    write(tmp_path / "scripts", _subject(), [call], TEST)
    (script,) = scripts_in(tmp_path / "scripts", TEST)
    if edit:
        text = script.read_text("utf-8")
        assert edit[0] in text
        script.write_text(text.replace(*edit), "utf-8")
    # Where this process has its vLLM from may be PYTHONPATH, and that relative to this folder.
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )


@needs_vllm
def test_a_script_shows_the_alias_of_a_single_row(tmp_path: Path) -> None:
    done = _run(tmp_path, Call(group_linear.local_view, LAYOUT, (LINEAR,), {}))
    assert done.returncode == 1, done.stderr
    for rank in range(2):
        assert f"rank {rank}: local view after the group was overwritten" in done.stdout
    assert "got      [[[-1.0, -1.0, -1.0]" in done.stdout
    assert done.stdout.endswith("ranks that are not as expected: [0, 1]\n")


@needs_vllm
@pytest.mark.parametrize(
    "call",
    [
        Call(merge.merge_partials, LAYOUT, (MERGE, "ag_rs", False), {}),
        Call(decode.both_paths, LAYOUT, (DECODE,), {}),
        Call(decode.both_paths, ROUNDED.layout, (ROUNDED,), {}),
    ],
    ids=["merge", "decode", "paths a rounding apart"],
)
def test_a_script_of_what_is_right_says_so(tmp_path: Path, call: Call) -> None:
    done = _run(tmp_path, call)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "every rank is as expected\n"


@needs_vllm
@pytest.mark.parametrize(
    ("call", "edit", "what"),
    [
        (
            Call(merge.merge_partials, LAYOUT, (MERGE, "a2a"), {}),
            ("is_lse_base_on_e=BASE_E", "is_lse_base_on_e=not BASE_E"),
            "merged output",
        ),
        (
            Call(decode.both_paths, LAYOUT, (DECODE,), {}),
            ("keys = cache[", "keys = 1.01 * cache["),
            "output of the gather path",
        ),
    ],
    ids=["merge", "decode"],
)
def test_a_script_shows_what_is_wrong(
    tmp_path: Path, call: Call, edit: tuple[str, str], what: str
) -> None:
    done = _run(tmp_path, call, edit)
    assert done.returncode == 1, done.stderr
    assert f"rank 1: {what}" in done.stdout


@pytest.mark.parametrize("pattern", Pattern)
def test_the_numbers_of_a_script_are_those_of_the_example(pattern: Pattern) -> None:
    data = Data(5, pattern)

    def drawn(seed: int, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed))

    for scale in (1.0, 0.3):
        text = expression(data, "x", 3, 4, scale=scale)
        value = eval(text, {"torch": torch, "drawn": drawn})
        assert torch.equal(value, data.tensor("x", 3, 4, scale=scale))


@pytest.mark.parametrize(
    ("name", "call", "sentence"),
    [
        ("impl", Call(linear.build, LAYOUT, (LINEAR,), {}), "impl is part of this repository"),
        ("vllm", Call(storage.slots, LAYOUT, (SLOTS,), {}), "no script shows storage.slots yet"),
        (
            "vllm",
            Call(
                linear.build,
                LAYOUT,
                (
                    LinearCase(
                        LAYOUT,
                        *(5, 3, 4, True, "float16", 1, Data(7)),
                        quantization=Quantization(Scheme.FP8_CHANNEL),
                    ),
                ),
                {},
            ),
            "no script shows quantized weights",
        ),
    ],
)
def test_what_no_script_shows_is_said_in_a_sentence(
    tmp_path: Path, name: str, call: Call, sentence: str
) -> None:
    (line,) = write(tmp_path, _subject(name), [call], TEST)
    assert sentence in line
    assert not list(tmp_path.iterdir())


def test_new_scripts_of_a_test_take_the_place_of_its_old_ones(tmp_path: Path) -> None:
    plain, group = (
        Call(linear.build, LAYOUT, (LINEAR,), {"group": group}) for group in (False, True)
    )
    assert len(write(tmp_path, _subject(), [plain, group, plain], TEST)) == 2
    assert [path.name for path in scripts_in(tmp_path, TEST)] == [
        "test_x-test_y.py",
        "test_x-test_y-2.py",
    ]
    write(tmp_path, _subject(), [plain], TEST)
    assert [path.name for path in tmp_path.iterdir()] == ["test_x-test_y.py"]


def test_the_calls_are_those_of_the_smallest_failing_example() -> None:
    subject = _subject()

    @given(rows=st.integers(0, 1000))
    def fails_from_ten_on(rows: int) -> None:
        subject.run(LAYOUT, storage.slots, SlotsCase(LAYOUT, rows, (), 4))
        assert rows < 10

    item = cast(pytest.Function, SimpleNamespace(function=fails_from_ten_on, fixturenames=()))
    with (
        tolerate_known_failures(item, ()) as examples,
        recorded(examples) as calls,
        pytest.raises(AssertionError),
    ):
        fails_from_ten_on()
    assert [call.args for call in calls] == [(SlotsCase(LAYOUT, 10, (), 4),)]

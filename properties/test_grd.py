"""GRD: guards."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.clauses import clause
from fixtures.dims import MLADims
from fixtures.gate.profiles import examples
from fixtures.layout import Layout
from fixtures.options import SWITCH, Obstacle, StartUp, named_by, obstacles
from fixtures.programs import guards
from fixtures.programs.refusals import Refusal
from fixtures.subjects.api import Part, Subject

KINDS = ("NotImplementedError", "ValueError")


@clause("GRD-1", needs=(Part.SWITCH,))
@pytest.mark.parametrize("obstacle", [pytest.param(one, id=one.name) for one in Obstacle])
@settings(max_examples=examples(0.5))
@given(data=st.data())
def test_what_is_not_supported_is_refused_before_anything_is_allocated(
    subject: Subject, obstacle: Obstacle, data: st.DataObject
) -> None:
    start = data.draw(strategies.obstructed_start_ups(obstacle), label="start-up")
    assert obstacles(start) == {obstacle}
    for rank, started in enumerate(subject.run(start.layout, guards.start, start)):
        assert started.refusal is not None, f"rank {rank} starts, although {obstacle}"
        refusal = started.refusal
        assert refusal.kind in KINDS, f"rank {rank} refuses with {refusal}"
        for name in named_by(start, obstacle):
            assert name in refusal.message, f"rank {rank} does not name {name}: {refusal}"
        assert started.early is not None, (
            f"rank {rank} refuses only after weights were loaded, with {refusal}"
        )
        assert refusal.nbytes == 0, f"rank {rank} refuses with {refusal}"


@clause("GRD-2", "GRD-4", needs=(Part.SWITCH,))
@given(start=strategies.supported_start_ups())
def test_what_is_supported_starts_as_the_switch_says(subject: Subject, start: StartUp) -> None:
    assert not obstacles(start)
    expected = start.layout.dcp if start.replicated else 1
    for rank, started in enumerate(subject.run(start.layout, guards.start, start)):
        assert started.refusal is None, f"rank {rank} refuses with {started.refusal}"
        assert started.group_size == expected, (
            f"rank {rank} has a query projection for {started.group_size} ranks, not {expected}"
        )


@clause("GRD-3", needs=(Part.SWITCH,))
@settings(max_examples=examples(0.5))
@given(texts=st.lists(strategies.spellings(), min_size=1, max_size=8).map(tuple))
def test_every_spelling_of_the_switch_is_understood_or_refused_by_name(
    subject: Subject, texts: tuple[str | None, ...]
) -> None:
    layout = Layout(2, 2)
    dims = MLADims(2, 3, 2, 5, 4, 7)
    for rank, said in enumerate(subject.run(layout, guards.spell, dims, texts)):
        for text, answer in zip(texts, said, strict=True):
            expected = strategies.meaning(text)
            if isinstance(answer, Refusal):
                assert answer.kind == "ValueError", f"rank {rank}, {text!r}: {answer}"
                assert SWITCH in answer.message, f"rank {rank}, {text!r} unnamed: {answer}"
            else:
                assert answer == expected, (
                    f"rank {rank}: {SWITCH}={text!r} is {'on' if answer else 'off'}, but "
                    f"should {'be refused' if expected is None else 'be ' + str(expected)}"
                )

"""GRD: guards."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fixtures.cases.startup import Obstacle, StartUp
from fixtures.model.dims import MLADims
from fixtures.model.layout import Layout
from fixtures.model.options import SWITCH
from fixtures.model.quantization import Scheme
from fixtures.oracle.startup import meaning, named_by, obstacles, told_by
from fixtures.programs import startup
from fixtures.programs.refusals import Refusal
from fixtures.programs.startup import Started
from fixtures.strategies.layouts import layouts
from fixtures.strategies.startup import (
    GUARDED_SCHEMES,
    block_start_ups,
    obstructed_start_ups,
    padded_start_ups,
    spellings,
    supported_start_ups,
)
from fixtures.subjects.subject import Capability, Subject
from fixtures.subjects.without_asserts import start_without_asserts
from properties import pinned
from properties.contract import clause

KINDS = ("NotImplementedError", "ValueError")


def _understood(subject: Subject, start: StartUp) -> StartUp:
    """``start``, the switch turned in a place that the subject has."""
    if Capability.CONFIG_FIELD not in subject.lacks:
        return start
    return dataclasses.replace(start, options=start.options.switched_by_environment())


OBSTACLES = pytest.mark.parametrize(
    "obstacle", [pytest.param(obstacle, id=obstacle.name) for obstacle in Obstacle]
)


def _refusals(
    subject: Subject, obstacle: Obstacle, data: st.DataObject
) -> tuple[StartUp, list[tuple[Refusal, Started]]]:
    """A start-up that meets the obstacle, and how each rank refuses it."""
    start = data.draw(obstructed_start_ups(obstacle).map(partial(_understood, subject)), "start")
    assert obstacles(start) == {obstacle}
    refusals = []
    for rank, started in enumerate(subject.run(start.layout, startup.start, start)):
        assert started.refusal is not None, f"rank {rank} starts, although {obstacle}"
        refusals.append((started.refusal, started))
    return start, refusals


@clause("GRD-1", needs=(Capability.SWITCH,), effort=0.5)
@OBSTACLES
@given(data=st.data())
def test_what_is_not_supported_is_refused_in_words_before_weights_are_loaded(
    subject: Subject, obstacle: Obstacle, data: st.DataObject
) -> None:
    _, refusals = _refusals(subject, obstacle, data)
    for rank, (refusal, started) in enumerate(refusals):
        assert any(word in refusal.message.lower() for word in told_by(obstacle)), (
            f"rank {rank} does not say why: {refusal}"
        )
        # Which python -O leaves out.
        assert refusal.kind != "AssertionError", f"rank {rank} refuses with {refusal}"
        assert started.early is not None, (
            f"rank {rank} refuses only after weights were loaded, with {refusal}"
        )


@clause("GRD-1", needs=(Capability.SWITCH,), effort=0.5)
@OBSTACLES
@given(data=st.data())
def test_a_refusal_names_the_option_and_the_values_before_anything_is_allocated(
    subject: Subject, obstacle: Obstacle, data: st.DataObject
) -> None:
    start, refusals = _refusals(subject, obstacle, data)
    for rank, (refusal, _) in enumerate(refusals):
        assert refusal.kind in KINDS, f"rank {rank} is refused by kind: {refusal}"
        for name in named_by(start, obstacle):
            assert name in refusal.message, f"rank {rank} does not name {name}: {refusal}"
        assert refusal.nbytes == 0, f"rank {rank} is refused late: {refusal}"


@clause("GRD-1", needs=(Capability.SWITCH,))
@settings(max_examples=1)
@given(starts=st.tuples(*(obstructed_start_ups(obstacle) for obstacle in Obstacle)))
def test_nothing_but_a_real_guard_refuses_without_assertions(
    subject: Subject, starts: tuple[StartUp, ...]
) -> None:
    starts = tuple(_understood(subject, start) for start in starts)
    outcomes = start_without_asserts(subject.name, starts)
    constructed = [
        obstacle.name
        for obstacle, by_rank in zip(Obstacle, outcomes, strict=True)
        if any(started.early is None for started in by_rank)
    ]
    for by_rank in outcomes:
        for rank, started in enumerate(by_rank):
            if (refusal := started.early) is not None:
                assert refusal.kind != "AssertionError", (
                    f"under python -O rank {rank} refuses with {refusal}"
                )
    assert not constructed, f"under python -O these are constructed: {', '.join(constructed)}"


def _check_starts(subject: Subject, start: StartUp) -> None:
    assert not obstacles(start)
    start = _understood(subject, start)
    expected = start.layout.dcp if start.replicated else 1
    for rank, started in enumerate(subject.run(start.layout, startup.start, start)):
        assert started.refusal is None, f"rank {rank} refuses with {started.refusal}"
        assert started.group_size == expected, (
            f"rank {rank} has a query projection for {started.group_size} ranks, not {expected}"
        )


@clause("GRD-2", "GRD-4", needs=(Capability.SWITCH,))
@pytest.mark.parametrize(
    "scheme", [pytest.param(scheme, id=scheme.name) for scheme in GUARDED_SCHEMES]
)
@given(data=st.data())
def test_what_is_supported_starts_as_the_switch_says(
    subject: Subject, scheme: Scheme, data: st.DataObject
) -> None:
    _check_starts(subject, data.draw(supported_start_ups(scheme), label="start"))


@clause("GRD-2", needs=(Capability.SWITCH,), effort=0.3)
@given(start=block_start_ups())
@example(start=pinned.ONE_BLOCK)
def test_blocks_within_kv_b_proj_and_beyond_are_supported(subject: Subject, start: StartUp) -> None:
    _check_starts(subject, start)


@clause("GRD-2", needs=(Capability.SWITCH,), effort=0.3)
@given(start=padded_start_ups())
def test_padding_to_the_heads_of_the_group_is_supported(subject: Subject, start: StartUp) -> None:
    _check_starts(subject, start)


@clause("GRD-3", needs=(Capability.SWITCH,))
@given(layout=layouts(tp_sizes=(2,), min_dcp=2), text=spellings())
@example(layout=Layout(2, 2), text="TRUE")
def test_every_spelling_of_the_switch_is_understood_or_refused_by_name(
    subject: Subject, layout: Layout, text: str | None
) -> None:
    dims, expected = MLADims(layout.tp, 3, 2, 5, 4, 7), meaning(text)
    for rank, answers in enumerate(subject.run(layout, startup.spell, dims, (text,))):
        for answer in answers:
            if isinstance(answer, Refusal):
                assert answer.kind == "ValueError", f"rank {rank}, {text!r}: {answer}"
                assert SWITCH in answer.message, f"rank {rank}, {text!r} unnamed: {answer}"
            else:
                assert answer == expected, (
                    f"rank {rank}: {SWITCH}={text!r} is {'on' if answer else 'off'}, but "
                    f"should {'be refused' if expected is None else 'be ' + str(expected)}"
                )

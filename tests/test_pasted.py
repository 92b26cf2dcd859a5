"""What Hypothesis prints of an example can be pasted into properties/pinned.py."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, is_hypothesis_test, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject, SearchStrategy, data

import properties
from fixtures.cases.adapters import Misfit
from fixtures.cases.overrides import Impossible
from fixtures.cases.startup import Obstacle
from fixtures.model.quantization import Scheme
from fixtures.strategies.adapters import misfit_cases
from fixtures.strategies.kernels import kernel_cases
from fixtures.strategies.layouts import layouts
from fixtures.strategies.overrides import impossible_overrides, override_cases
from fixtures.strategies.startup import (
    GUARDED_SCHEMES,
    obstructed_start_ups,
    supported_start_ups,
)
from properties import pinned

FEW = settings(
    max_examples=5,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def _drawn_by_properties() -> Iterator[tuple[str, SearchStrategy[Any]]]:
    """What every property draws, by its name and the argument's."""
    for module in pkgutil.iter_modules(properties.__path__, "properties."):
        for name, test in vars(importlib.import_module(module.name)).items():
            if name.startswith("test_") and is_hypothesis_test(test):
                for argument, strategy in test.hypothesis._given_kwargs.items():
                    if not isinstance(strategy, type(data())):
                        yield f"{name} {argument}", strategy


STRATEGIES: dict[str, SearchStrategy[Any]] = {
    **dict(_drawn_by_properties()),
    # What properties draw for a parameter of theirs, or for a subject.
    **{f"obstructed {kind.name}": obstructed_start_ups(kind) for kind in Obstacle},
    **{f"supported {scheme.name}": supported_start_ups(scheme) for scheme in GUARDED_SCHEMES},
    **{f"override {scheme.name}": override_cases(schemes=[scheme]) for scheme in Scheme},
    **{f"impossible {kind.name}": impossible_overrides(kind) for kind in Impossible},
    **{f"misfit {kind.name}": misfit_cases(kind) for kind in Misfit},
    **{
        f"kernels {kernels}": kernel_cases(kernels, layouts(min_dcp=2))
        for kernels in ("triton_mla", "flashinfer")
    },
}


def pasted(text: str) -> Any:
    """The value of ``text`` with the names of properties/pinned.py."""
    return eval(text, dict(vars(pinned)))


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_representation_of_an_example_is_its_expression(name: str) -> None:
    @FEW
    @given(STRATEGIES[name])
    def draw(example: object) -> None:
        assert pasted(repr(example)) == example

    draw()


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_failing_example_that_hypothesis_prints_is_an_expression(name: str) -> None:
    drawn: list[object] = []

    @settings(FEW, phases=[Phase.generate], max_examples=1, report_multiple_bugs=False)
    @given(example=STRATEGIES[name])
    def fails(example: object) -> None:
        drawn.append(example)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        fails()
    (printed,) = (note for note in raised.value.__notes__ if ": fails(" in note)
    call = ast.parse(printed.partition(": ")[2], mode="eval").body
    assert isinstance(call, ast.Call)
    (argument,) = call.keywords
    assert pasted(ast.unparse(argument.value)) == drawn[-1]


def test_what_a_property_draws_while_it_runs_is_printed_as_an_expression() -> None:
    drawn: list[object] = []

    @settings(FEW, phases=[Phase.generate], max_examples=1, report_multiple_bugs=False)
    @given(source=st.data())
    def fails(source: DataObject) -> None:
        drawn.append(source.draw(obstructed_start_ups(Obstacle.HEAD_PADDING), label="start-up"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        fails()
    (printed,) = (note for note in raised.value.__notes__ if note.startswith("Draw 1"))
    assert pasted(printed.partition(": ")[2]) == drawn[-1]

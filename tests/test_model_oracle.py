"""The oracle of a whole model, and what it says of rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import strategies
from fixtures.data import Data
from fixtures.deepseek import VOCABULARY, Model
from fixtures.dims import Batch, MLADims, Request
from fixtures.layout import Layout
from fixtures.model_oracle import ModelOracle, Roundings, _Pass
from fixtures.programs.engine import EngineCase
from fixtures.programs.mla import ModuleCase

DIMS = MLADims(4, 6, 8, 10, 5, 32)
FEW = settings(max_examples=20, derandomize=True, database=None, deadline=None)


@pytest.mark.parametrize("q_lora", [False, True])
def test_its_attention_is_that_of_the_oracle_of_one_layer(q_lora: bool) -> None:
    tokens = 7
    batch = Batch(prefills=(Request(tokens, tokens),))
    case = ModuleCase(Layout(2, 2), DIMS, batch, 1, q_lora, False, Data(3))
    weights = {name: tensor.double() for name, tensor in case.checkpoint().items()}
    attended = _Pass(DIMS, 2, tokens).attention(case.hidden_states().double(), weights)
    assert torch.allclose(attended, case.expected().value, rtol=1e-12, atol=1e-12)


@FEW
@given(case=strategies.engine_cases(), seed=st.integers(0, 1000))
def test_roundings_move_a_result_by_no_more_than_it_says(case: EngineCase, seed: int) -> None:
    oracle = ModelOracle(case.model, case.layout)
    prompt = case.prompts[0][0]
    exact, roundings = oracle.logits(prompt)
    generator = torch.Generator().manual_seed(seed)

    def round_up_or_down(self: Roundings, exact: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, exact.shape, generator=generator) * 2 - 1
        return exact + signs * bound

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Roundings, "round", round_up_or_down)
        rounded, _ = oracle.logits(prompt)
    for token in range(0, VOCABULARY, 16):
        difference = exact[-1, token] - exact[-1, token + 1]
        moved = rounded[-1, token] - rounded[-1, token + 1] - difference
        assert abs(moved.item()) <= 2 * roundings.error(difference)


@FEW
@given(case=strategies.engine_cases())
def test_a_token_that_is_not_the_likeliest_is_found(case: EngineCase) -> None:
    oracle = ModelOracle(case.model, case.layout)
    prompt = case.prompts[0][0]
    order = oracle.logits(prompt)[0][-1].argsort(descending=True).tolist()
    assert not oracle.mistake(prompt, order[:1])
    # What is so far from the largest that rounding decides nothing.
    wrong = order[VOCABULARY // 2]
    assert f"after 0 new tokens comes {wrong}, but the oracle's likeliest is {order[0]}" in (
        oracle.mistake(prompt, [wrong])
    )


def test_what_rounding_decides_is_no_mistake() -> None:
    model = Model(DIMS, False, Data(5))
    oracle = ModelOracle(model, Layout(2, 2))
    first, second = oracle.logits([1, 2, 3])[0][-1].topk(2).indices.tolist()
    # One token's row of the head is moved close to the other's.
    head = oracle._weights["lm_head.weight"]
    head[second] += (1 - 1e-7) * (head[first] - head[second])
    assert int(oracle.logits([1, 2, 3])[0][-1].argmax()) == first
    assert not oracle.mistake([1, 2, 3], [second])

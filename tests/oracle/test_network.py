"""The oracle of a whole model, and what it says of rounding."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings

from fixtures.cases.engine import EngineCase
from fixtures.cases.module import ModuleCase
from fixtures.model.deepseek import VOCABULARY, Model
from fixtures.model.dims import Batch, MLADims, Request
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data
from fixtures.oracle import module
from fixtures.oracle.network import ModelOracle, Roundings, _Pass
from fixtures.strategies.engine import engine_cases

DIMS = MLADims(4, 6, 8, 10, 5, 32)
FEW = settings(max_examples=20, derandomize=True, database=None, deadline=None)


@pytest.mark.parametrize("q_lora", [False, True])
def test_its_attention_is_that_of_the_oracle_of_one_layer(q_lora: bool) -> None:
    tokens = 7
    batch = Batch(prefills=(Request(tokens, tokens),))
    case = ModuleCase(Layout(2, 2), DIMS, batch, 1, q_lora, False, Data(3))
    weights = {name: tensor.double() for name, tensor in case.checkpoint().items()}
    attended = _Pass(DIMS, 2, tokens).attention(case.hidden_states().double(), weights)
    assert torch.allclose(attended, module.expected(case).value, rtol=1e-12, atol=1e-12)


@FEW
@given(case=engine_cases())
def test_the_worst_roundings_move_a_result_as_far_as_it_says(case: EngineCase) -> None:
    oracle = ModelOracle(case.model, case.layout)
    prompt = case.workload.rounds[0][0].prompt
    exact, roundings = oracle.logits(prompt)
    difference = exact[-1, 0] - exact[-1, 1]
    slopes = iter(
        torch.autograd.grad(difference, roundings._terms, retain_graph=True, allow_unused=True)
    )

    def upwards(self: Roundings, exact: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
        slope = next(slopes)
        return exact if slope is None else exact + slope.sign() * bound

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Roundings, "round", upwards)
        rounded, _ = oracle.logits(prompt)
    moved = (rounded[-1, 0] - rounded[-1, 1] - difference).item()
    assert moved == pytest.approx(roundings.error(difference), rel=0.1)


@FEW
@given(case=engine_cases())
def test_a_token_that_is_not_the_likeliest_is_found(case: EngineCase) -> None:
    oracle = ModelOracle(case.model, case.layout)
    prompt = case.workload.rounds[0][0].prompt
    logprobs = oracle.logits(prompt)[0][-1].log_softmax(-1).tolist()
    order = sorted(range(VOCABULARY), key=logprobs.__getitem__, reverse=True)
    assert not oracle.mistake(prompt, order[:1], [logprobs[order[0]]])
    # What is so far from the largest that rounding decides nothing.
    wrong = order[VOCABULARY // 2]
    assert f"after 0 new tokens comes {wrong}, but the oracle's likeliest is {order[0]}" in (
        oracle.mistake(prompt, [wrong], [logprobs[wrong]])
    )


@pytest.mark.parametrize("off", [-0.01, 0.01, math.inf, math.nan])
def test_a_probability_that_is_none_of_its_token_is_found(off: float) -> None:
    oracle = ModelOracle(Model(DIMS, False, Data(5)), Layout(2, 2))
    prompt = [1, 2, 3]
    logprob, token = oracle.logits(prompt)[0][-1].log_softmax(-1).max(-1)
    assert not oracle.mistake(prompt, [int(token)], [torch.tensor(logprob.item()).float().item()])
    mistake = oracle.mistake(prompt, [int(token)], [logprob.item() + off])
    assert f"after 0 new tokens comes {token} at a log-probability of" in mistake
    assert f"but the oracle's is {logprob:.9g}" in mistake


def test_what_rounding_decides_is_no_mistake() -> None:
    model = Model(DIMS, False, Data(5))
    oracle = ModelOracle(model, Layout(2, 2))
    first, second = oracle.logits([1, 2, 3])[0][-1].topk(2).indices.tolist()
    # One token's row of the head is moved close to the other's.
    head = oracle._weights["lm_head.weight"]
    head[second] += (1 - 1e-7) * (head[first] - head[second])
    logprobs = oracle.logits([1, 2, 3])[0][-1].log_softmax(-1)
    assert int(logprobs.argmax()) == first
    assert not oracle.mistake([1, 2, 3], [second], [logprobs[second].item()])

"""The bounds hold for correct computations in every dtype, and are far from useless."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.model.numbers import DTYPES, Data
from fixtures.oracle.bounds import Bounded, attend, einsum, exact, gamma, unit_roundoff
from fixtures.oracle.layers import project
from fixtures.strategies.numbers import data as sources

SETTINGS = settings(max_examples=100, derandomize=True, database=None, deadline=None)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("float32", 2**-24), ("float16", 2**-11), ("bfloat16", 2**-8)]
)
def test_unit_roundoff(dtype: str, expected: float) -> None:
    assert unit_roundoff(DTYPES[dtype]) == expected


def test_gamma_refuses_where_it_says_nothing() -> None:
    with pytest.raises(ValueError, match=r"256 roundings in torch\.bfloat16"):
        gamma(256, torch.bfloat16)


@SETTINGS
@given(sources(), st.sampled_from(sorted(DTYPES)), st.integers(1, 40))
def test_a_linear_layer_is_within_its_bound(data: Data, dtype: str, width: int) -> None:
    weight = data.tensor("weight", 5, width).to(DTYPES[dtype])
    x = data.tensor("x", 3, width).to(DTYPES[dtype])
    bias = data.tensor("bias", 5).to(DTYPES[dtype])
    expected = project(weight, x, bias)
    assert not expected.violations(torch.nn.functional.linear(x, weight, bias)).any()


@SETTINGS
@given(sources(), st.sampled_from(sorted(DTYPES)), st.integers(1, 40), st.randoms())
def test_a_product_lands_where_its_bound_says_in_any_order_of_summation(
    data: Data, dtype: str, width: int, random: Random
) -> None:
    weight = data.tensor("weight", 5, width).to(DTYPES[dtype])
    x = data.tensor("x", 3, width).to(DTYPES[dtype])
    landing = einsum("bi,oi->bo", exact(x), exact(weight), width).landing(DTYPES[dtype])
    order = random.sample(range(width), width)
    total = torch.zeros(3, 5)
    for column in order:
        total += x[:, column, None].float() * weight[:, column].float()
    assert not landing.violations(total.to(DTYPES[dtype])).any()


def test_a_product_of_16_bits_mostly_lands_on_one_number() -> None:
    x, weight = (Data(0).tensor(name, 40, 8).bfloat16() for name in "xw")
    landing = einsum("bi,oi->bo", exact(x), exact(weight), 8).landing(torch.bfloat16)
    assert (landing.error == 0).double().mean() > 0.99


@SETTINGS
@given(sources(), st.sampled_from([0.3, 1.0, 2.0, 100.0]))
def test_rounding_to_float8_lands_where_its_bound_says(data: Data, scale: float) -> None:
    x = data.tensor("x", 100)
    largest = torch.finfo(torch.float8_e4m3fn).max
    for divided in (x / scale, x * torch.tensor(scale).reciprocal()):
        meant = divided.clamp(-largest, largest).to(torch.float8_e4m3fn).float() * scale
        assert not exact(x).quantized(scale).violations(meant).any()


@SETTINGS
@given(sources(), st.integers(1, 30))
def test_attention_is_within_its_bound_and_the_bound_is_tight(data: Data, keys: int) -> None:
    scores = data.tensor("scores", 2, keys)
    values = data.tensor("values", keys, 4)
    expected, lse = attend(exact(scores), exact(values), 1, torch.float32)
    assert not expected.violations(scores.softmax(-1) @ values).any()
    assert not lse.violations(scores.logsumexp(-1)).any()
    assert (expected.error <= 1e-4 * values.abs().max() + 1e-30).all()


@SETTINGS
@given(st.integers(0, 2**16), st.integers(1, 12), st.floats(1e-4, 4000.0), st.floats(0.1, 3000.0))
def test_scores_off_by_their_error_stay_within_the_bound_of_attention(
    seed: int, keys: int, error: float, spread: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(2, keys, generator=generator).double()
    errors = error * torch.rand(2, keys, generator=generator).double()
    values = torch.randn(keys, 3, generator=generator).double()
    expected, lse = attend(Bounded(scores, errors), exact(values), 1, torch.float32)
    signs = torch.randint(0, 2, (2, keys), generator=generator) * 2 - 1
    off = scores + signs * errors
    assert not expected.violations(off.softmax(-1) @ values).any()
    assert not lse.violations(off.logsumexp(-1)).any()


def test_the_bound_of_attention_is_reached_by_the_worst_scores() -> None:
    scores, errors = torch.zeros(1, 2).double(), torch.full((1, 2), 0.01).double()
    values = torch.tensor([[1.0], [-1.0]]).double()
    expected, _ = attend(Bounded(scores, errors), exact(values), 1, torch.float32)
    worst = torch.tensor([[0.01, -0.01]]).double().softmax(-1) @ values
    assert worst.item() > 0.95 * expected.error.item()


def test_leaving_out_one_of_many_keys_exceeds_the_bound() -> None:
    data = Data(0)
    scores, values = data.tensor("scores", 2, 200), data.tensor("values", 200, 4)
    expected, _ = attend(exact(scores), exact(values), 8, torch.float32)
    wrong = scores[:, :-1].softmax(-1) @ values[:-1]
    assert expected.violations(wrong).any()


def test_nan_violates_every_bound() -> None:
    loose = Bounded(torch.zeros(1).double(), torch.full((1,), torch.inf).double())
    assert loose.violations(torch.tensor([torch.nan])).all()


def test_errors_of_both_factors_are_carried() -> None:
    x = Bounded(torch.tensor([[2.0]]).double(), torch.tensor([[0.5]]).double())
    y = Bounded(torch.tensor([[3.0]]).double(), torch.tensor([[0.25]]).double())
    product = einsum("ij,jk->ik", x, y, 1)
    worst = 2.5 * 3.25 - 6
    assert product.error.item() >= worst
    assert product.error.item() <= worst * 1.001

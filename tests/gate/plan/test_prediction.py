"""Ratios move as their physics says, and the answer flips where they cross 1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gate.plan.deployment import Deployment
from gate.plan.machine import Rate
from gate.plan.models import find
from gate.plan.prediction import Setting, answer, flip_sentence, flips, predict, saved
from gate.plan.work import Work
from tests.gate.plan.synthetic import MACHINE, RATES

R1 = find("DeepSeek-R1")


def setting(
    tp: int = 8, dcp: int = 8, link: float | None = None, context: int | None = None
) -> Setting:
    machine = MACHINE if link is None else MACHINE.with_link("gather", link, None)
    return Setting(machine, Deployment(R1, tp, dcp), context)


def test_a_slower_link_favors_replication() -> None:
    ratios = [predict(setting(link=latency), 8).ratio for latency in (2.0, 9.0, 30.0)]
    assert ratios == sorted(ratios, reverse=True)


def test_a_faster_link_favors_the_gather() -> None:
    before = predict(setting(), 256).ratio
    faster = replace(setting(), machine=MACHINE.with_link("gather", None, 900.0))
    assert predict(faster, 256).ratio > before


def test_more_local_heads_cost_more_at_one_token() -> None:
    ratios = [predict(setting(tp=tp, dcp=2), 1).ratio for tp in (32, 16, 8, 4, 2)]
    assert ratios == sorted(ratios)


def test_attention_brings_the_ratio_closer_to_one() -> None:
    alone = predict(setting(dcp=2), 64).ratio
    short = predict(setting(dcp=2, context=1024), 64).ratio
    long = predict(setting(dcp=2, context=65536), 64).ratio
    assert alone < short < long < 1


def test_a_sparse_attention_stops_at_its_keys() -> None:
    sparse = Setting(MACHINE, Deployment(find("DeepSeek-V3.2"), 8, 8), 65536)
    capped = setting(context=2048)
    assert predict(sparse, 8) == predict(capped, 8)


def test_the_answer_flips_where_the_ratio_crosses_one() -> None:
    asked = setting(tp=2, dcp=2)
    (at,) = flips(asked)
    assert predict(asked, at - 1).ratio >= 1 > predict(asked, at).ratio
    assert flip_sentence(asked) == f"off below batch {at}, on from {at}"


def test_an_answer_that_never_flips() -> None:
    assert flip_sentence(setting(tp=32, dcp=2)) == "on at every batch from 1 to 1024"


def test_the_answer_in_words() -> None:
    assert answer(setting(tp=32, dcp=2), 64).startswith("switch it on at batch 64: ")
    assert answer(setting(tp=2, dcp=2, link=0.5), 1).startswith("switch it off at batch 1: ")
    unsure = replace(setting(), machine=replace(MACHINE, error=5.0))
    assert "leave it off, it costs memory" in answer(unsure, 64)


def test_what_a_step_saves() -> None:
    # 7 other ranks' 16 heads of 576 numbers, 2 bytes each, for each of 32 tokens.
    less = saved(setting(), 32)
    assert less.link_bytes == 7 * 16 * 576 * 2 * 32
    assert less.launches == 2
    assert saved(replace(setting(), gather="gather-direct"), 32).launches == 1


def test_a_part_takes_the_longer_of_loading_and_arithmetic_and_the_rest_besides() -> None:
    rate = Rate(2.0, weights_tbs=4.0, activations_tbs=2.0, tflops=500.0)
    work = Work("x", weights=4e6, activations=2e6, flops=1e9)
    assert rate.microseconds(work) == pytest.approx(2.0 + 1.0 + 2.0)
    assert replace(rate, floor_us=7.0).microseconds(work) == 7.0
    assert RATES["gather"].microseconds(Work("gather", link=3e6, hops=6)) == pytest.approx(
        9.0 + 10.0 + 3.6
    )

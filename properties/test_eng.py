"""ENG: whole engine."""

from __future__ import annotations

import pytest
from hypothesis import event, given

from fixtures.cases.engine import EngineCase
from fixtures.model.deepseek import LAYERS
from fixtures.model.engine import Generation, Runner
from fixtures.oracle.network import ModelOracle
from fixtures.programs import engine
from fixtures.strategies.engine import engine_cases
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.contract import clause


@clause("ENG-1", needs=(Capability.ENGINE,))
@pytest.mark.parametrize("runner", Runner)
def test_a_preempted_request_goes_on_where_it_was(subject: Subject, runner: Runner) -> None:
    case = pinned.PREEMPTED.run_by(runner)
    for generation in _serve(subject, case):
        assert generation.preemptions, f"no request was preempted in {case}"


@clause("ENG-1", needs=(Capability.ENGINE,))
@pytest.mark.parametrize("runner", Runner)
def test_every_whole_block_of_a_prefix_is_used_again(subject: Subject, runner: Runner) -> None:
    case = pinned.PREFIX_REUSED.run_by(runner)
    # One block holds as many tokens on each rank of the group.
    span = case.serving.block_size * case.layout.dcp
    expected = sum(counts.shared // span * span for counts in case.rounds[1])
    for generation in _serve(subject, case):
        assert generation.reused == expected, (
            f"{generation.reused} tokens of the second round were not computed, but blocks of "
            f"{span} hold {expected} that the first round had, in {case}"
        )


@clause("ENG-1", needs=(Capability.ENGINE,), effort=0.1)
@given(case=engine_cases())
def test_an_engine_gives_the_same_greedy_tokens_off_and_on(
    subject: Subject, case: EngineCase
) -> None:
    served = _serve(subject, case)
    event(f"preempted: {any(generation.preemptions for generation in served)}")
    event(f"prefix reused: {any(generation.reused for generation in served)}")


def _serve(subject: Subject, case: EngineCase) -> list[Generation]:
    """What was generated off and, if the subject replicates, on: the same, and the oracle's."""
    replicates = Capability.REPLICATED_DECODE not in subject.lacks
    ranks = subject.run(case.layout, engine.generate, case, replicates)
    for rank, generations in enumerate(ranks):
        assert generations == ranks[0], (
            f"rank {rank} served {generations}, but rank 0 {ranks[0]}, in {case}"
        )
    served = list(ranks[0])
    replicated = LAYERS if case.layout.dcp > 1 else 0
    for switch, layers, generation in zip(("off", "on"), (0, replicated), served, strict=False):
        assert generation.replicated_layers == layers, (
            f"switched {switch}, {generation.replicated_layers} of {LAYERS} layers project the "
            f"query to the heads of their group, in {case}"
        )
        _check_greedy(case, generation, switch)
    return served


def _check_greedy(case: EngineCase, generation: Generation, switch: str) -> None:
    """Each token is the oracle's likeliest, and as likely, but for what rounding decides."""
    oracle = ModelOracle(case.model, case.layout)
    rounds = zip(case.workload.rounds, generation.tokens, generation.logprobs, strict=True)
    for number, answers in enumerate(rounds):
        for index, (ask, tokens, logprobs) in enumerate(zip(*answers, strict=True)):
            assert len(tokens) == ask.new_tokens, f"{len(tokens)} tokens for {ask} in {case}"
            mistake = oracle.mistake(ask.prompt, tokens, logprobs)
            assert not mistake, (
                f"switched {switch}, request {index} of round {number}: {mistake}, in {case}"
            )

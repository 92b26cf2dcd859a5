"""ENG: whole engine."""

from __future__ import annotations

import pytest
from hypothesis import Phase, event, given, settings

from fixtures import strategies
from fixtures.model.deepseek import LAYERS
from fixtures.model.engine import Generation, Runner
from fixtures.oracle.network import ModelOracle
from fixtures.programs import engine
from fixtures.programs.engine import EngineCase
from fixtures.subjects.subject import Capability, Subject
from properties import pinned
from properties.contract import clause

# An engine takes seconds: to try what else would fail, once an example is small, takes minutes.
COSTLY = settings(phases=set(Phase) - {Phase.explain})


@clause("ENG-1", needs=(Capability.ENGINE,))
@pytest.mark.parametrize("runner", Runner)
def test_a_preempted_request_goes_on_where_it_was(subject: Subject, runner: Runner) -> None:
    case = pinned.PREEMPTED.run_by(runner)
    for one in _serve(subject, case):
        assert one.preemptions, f"no request was preempted in {case}"


@clause("ENG-1", needs=(Capability.ENGINE,))
@pytest.mark.parametrize("runner", Runner)
def test_every_whole_block_of_a_prefix_is_used_again(subject: Subject, runner: Runner) -> None:
    case = pinned.PREFIX_REUSED.run_by(runner)
    # One block holds as many tokens on each rank of the group.
    span = case.serving.block_size * case.layout.dcp
    expected = sum(one.shared // span * span for one in case.rounds[1])
    for one in _serve(subject, case):
        assert one.reused == expected, (
            f"{one.reused} tokens of the second round were not computed, but blocks of {span} "
            f"hold {expected} that the first round had, in {case}"
        )


@clause("ENG-1", needs=(Capability.ENGINE,), effort=0.1)
@given(case=strategies.engine_cases())
@COSTLY
def test_an_engine_gives_the_same_greedy_tokens_off_and_on(
    subject: Subject, case: EngineCase
) -> None:
    served = _serve(subject, case)
    event(f"preempted: {any(one.preemptions for one in served)}")
    event(f"prefix reused: {any(one.reused for one in served)}")


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
    for switch, layers, one in zip(("off", "on"), (0, replicated), served, strict=False):
        assert one.replicated_layers == layers, (
            f"switched {switch}, {one.replicated_layers} of {LAYERS} layers project the query to "
            f"the heads of their group, in {case}"
        )
        _check_greedy(case, one, switch)
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

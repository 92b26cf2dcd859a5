"""ENG: whole engine."""

from __future__ import annotations

from hypothesis import Phase, event, given, settings

from fixtures import strategies
from fixtures.clauses import clause
from fixtures.engine import Generation
from fixtures.gate.profiles import examples
from fixtures.programs import engine
from fixtures.programs.engine import EngineCase
from fixtures.subjects.api import Part, Subject

# An engine takes seconds: to try what else would fail, once an example is small, takes minutes.
COSTLY = settings(max_examples=examples(0.2), phases=set(Phase) - {Phase.explain})


@clause("ENG-1", needs=(Part.ENGINE,))
@given(case=strategies.engine_cases())
@COSTLY
def test_an_engine_gives_the_same_greedy_tokens_off_and_on(
    subject: Subject, case: EngineCase
) -> None:
    replicates = Part.REPLICATED_DECODE not in subject.lacks
    ranks = subject.run(case.layout, engine.generate, case, replicates)
    off, on = ranks[0].off, ranks[0].on
    event(f"preempted: {off.preemptions > 0}")
    event(f"prefix reused: {off.reused > 0}")
    for rank, result in enumerate(ranks):
        assert (result.off, result.on) == (off, on), (
            f"rank {rank} generated {result.off} off and {result.on} on, but rank 0 {off} and {on}"
        )
    assert not off.replicated, "switched off, a layer projects the query of its group"
    _check_greedy(case, off, "off")
    if on is not None:
        assert on.replicated, "switched on, a layer projects the query of its rank alone"
        _check_greedy(case, on, "on")


def _check_greedy(case: EngineCase, generation: Generation, path: str) -> None:
    """Each token is the oracle's likeliest: off and on differ only where rounding decides."""
    for number, (prompts, answers) in enumerate(zip(case.prompts, generation.tokens, strict=True)):
        for index, (prompt, tokens) in enumerate(zip(prompts, answers, strict=True)):
            assert len(tokens) == case.new_tokens
            greedy = engine.greedy_tokens(case.model, case.layout, prompt, tokens)
            for step, token in enumerate(tokens):
                likeliest = greedy[step].nonzero().flatten().tolist()
                assert token in likeliest, (
                    f"{path}, prompt {index} of round {number}: after {step} new tokens comes "
                    f"{token}, but the oracle's likeliest is {likeliest}"
                )

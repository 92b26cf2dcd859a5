"""DEC-4 and DEC-2: the arithmetic of published checkpoints."""

from __future__ import annotations

from hypothesis import example, given

from fixtures.cases.module import ModuleCase
from fixtures.model.dims import Batch, MLADims, Request
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data
from fixtures.model.rope import Rope
from fixtures.oracle import check
from fixtures.oracle import module as oracle
from fixtures.programs import module
from fixtures.strategies.rope import published_cases
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

# DeepSeek-V3's YaRN, whose correction of the scores is 1.87, past the context it was trained on.
PAST_THE_FIRST_CONTEXT = ModuleCase(
    layout=Layout(2, 2),
    dims=MLADims(2, 6, 8, 7, 6, 5),
    batch=Batch(decodes=(Request(70),), prefills=(Request(4, 3),)),
    block_size=4,
    q_lora=True,
    llama_4_scaling=False,
    data=Data(11),
    hidden_size=9,
    rope=Rope(factor=40.0, original=64),
)


@clause(
    "DEC-4",
    needs=(Capability.REPLICATED_DECODE, Capability.PREFILL, Capability.SWITCH),
    effort=0.4,
)
@given(case=published_cases())
@example(case=PAST_THE_FIRST_CONTEXT)
def test_positions_and_scales_are_the_checkpoints(subject: Subject, case: ModuleCase) -> None:
    expected, live = oracle.expected(case), case.batch.num_tokens
    for rank, (off, on) in enumerate(subject.run(case.layout, module.both_steps, case)):
        check.bounded(off.output[:live], expected, f"gather path on rank {rank}")
        check.bounded(on.output[:live], expected, f"replicated path on rank {rank}")
        check.agree(on.output[:live], off.output[:live], expected, f"both paths on rank {rank}")
        check.bitwise(on.cache, off.cache, f"KV cache of rank {rank} after the step")

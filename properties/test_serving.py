"""A machine that serves: whatever it was asked before, on == off == oracle after each step."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from hypothesis import given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    get_state_machine_test,
    initialize,
    precondition,
    rule,
)

from fixtures.cases.decode import DecodeCase
from fixtures.cases.serving import ServedStep
from fixtures.model.dims import Batch, Request
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data
from fixtures.oracle import check, dense
from fixtures.oracle import decode as oracle
from fixtures.oracle.bounds import exact
from fixtures.oracle.ledger import assert_same, assert_saves
from fixtures.programs import serving
from fixtures.programs.serving import Served
from fixtures.ranks.api import Collective
from fixtures.strategies.decode import TRANSPORTS
from fixtures.strategies.dims import mla_dims
from fixtures.strategies.layouts import layouts
from fixtures.subjects.subject import Capability, Subject
from properties.contract import clause

MOST_REQUESTS = 4
MOST_TOKENS = 40
# Block 0 is the null block. The rest suffice for requests that are all as long as can be, spread
# over two ranks in blocks of one token.
NUM_BLOCKS = 1 + MOST_REQUESTS * (MOST_TOKENS // 2 + 2)
LIMITS = settings(stateful_step_count=40)
SMALL_LAYOUTS = layouts(tp_sizes=(2, 4), min_dcp=2, interleaves=(1, 2, 3))


@dataclass(eq=False)
class Running:
    """A request between steps.

    Attributes:
        keys: ``[tokens, L + R]`` of every token whose place is settled.
        computed: How many of them are in the cache; the rest is still to be prefilled.
        blocks: Its blocks of the cache.
    """

    keys: torch.Tensor
    computed: int = 0
    blocks: list[int] = field(default_factory=list)

    @property
    def prefilling(self) -> bool:
        return self.computed < len(self.keys)


class Serving(RuleBasedStateMachine):
    """Requests come, are prefilled in chunks, decode one or several tokens, and go."""

    subject: Subject

    def __init__(self) -> None:
        super().__init__()
        self.told = 0

    def _tell(self, what: str) -> None:
        """Say what a step does, for the words of a failing example."""
        self.told += 1
        note(f"Step {self.told}: {what}")

    @initialize(layout=SMALL_LAYOUTS, blocks=st.integers(1, 2), draw=st.data())
    def start(self, layout: Layout, blocks: int, draw: st.DataObject) -> None:
        self.dims = draw.draw(mla_dims(layout.tp), label="dims")
        self.data = Data(draw.draw(st.integers(0, 2**16 - 1), label="seed"))
        self.requests: list[Running] = []
        self.generation = 0
        self.steps = 0
        self._build(layout, blocks, "ag_rs")

    def _build(self, layout: Layout, blocks: int, transport: str) -> None:
        """Start the server on a layout; requests keep their tokens and lose their cache."""
        self.case = DecodeCase(
            layout=layout,
            dims=self.dims,
            batch=Batch(),
            block_size=layout.interleave * blocks,
            dtype="float32",
            data=self.data,
            transport=transport,
        )
        self._tell(
            f"start with {layout}, {self.dims}, blocks of {self.case.block_size}, merged by "
            f"{transport}, seed {self.data.seed}"
        )
        self.free = list(range(1, NUM_BLOCKS))
        self.fresh: list[int] = []
        for request in self.requests:
            request.computed, request.blocks = 0, []
        self.subject.run(layout, serving.start, self.case, NUM_BLOCKS)

    @rule(tokens=st.integers(1, 17))
    def admit(self, tokens: int) -> None:
        if len(self.requests) < MOST_REQUESTS:
            self._tell(f"admit request {len(self.requests)} of {tokens} tokens")
            self.requests.append(Running(self._numbers(tokens, self.dims.kv_width)))

    @precondition(lambda self: self.requests)
    @rule(draw=st.data())
    def finish(self, draw: st.DataObject) -> None:
        index = self._index(draw)
        self._tell(f"finish request {index}")
        self._release(self.requests.pop(index))

    @precondition(lambda self: self.requests)
    @rule(draw=st.data())
    def step(self, draw: st.DataObject) -> None:
        self._serve(draw, most_new=1, paddings=[0])

    @precondition(lambda self: self.requests)
    @rule(draw=st.data())
    def step_in_a_captured_size(self, draw: st.DataObject) -> None:
        self._serve(draw, most_new=1, paddings=[1, 3])

    @precondition(lambda self: any(not request.prefilling for request in self.requests))
    @rule(draw=st.data())
    def verify_drafts(self, draw: st.DataObject) -> None:
        self._serve(draw, most_new=4, paddings=[0, 2])

    @rule(event=st.sampled_from(["preempt", "load new weights", "switch layout"]), draw=st.data())
    def disturb(self, event: str, draw: st.DataObject) -> None:
        """What seldom happens, in one rule so that steps are more frequent."""
        if event == "load new weights":
            self._tell("load new weights")
            self.generation += 1
        elif event == "preempt" and self.requests:
            index = self._index(draw)
            self._tell(f"preempt request {index}")
            request = self.requests[index]
            self._release(request)
            request.computed, request.blocks = 0, []
        elif event == "switch layout":
            layout = draw.draw(SMALL_LAYOUTS, label="layout")
            if self.dims.num_heads % layout.tp == 0:
                blocks = draw.draw(st.integers(1, 2), label="blocks")
                self._build(layout, blocks, draw.draw(st.sampled_from(TRANSPORTS), "transport"))

    def _serve(self, draw: st.DataObject, most_new: int, paddings: list[int]) -> None:
        """Schedule a batch, run it, check it, and accept some of its tokens."""
        decodes = [running for running in self.requests if not running.prefilling]
        prefills = [running for running in self.requests if running.prefilling]
        if self._room(decodes) < most_new:
            return
        new = [draw.draw(st.integers(1, most_new), label="query tokens") for _ in decodes]
        chunks = [
            draw.draw(st.integers(1, len(running.keys) - running.computed), label="chunk")
            for running in prefills
        ]
        batch = Batch(
            decodes=tuple(
                Request(running.computed + count, count)
                for running, count in zip(decodes, new, strict=True)
            ),
            prefills=tuple(
                Request(running.computed + count, count)
                for running, count in zip(prefills, chunks, strict=True)
            ),
            padding=draw.draw(st.sampled_from(paddings), label="padding"),
        )
        scheduled = decodes + prefills
        self._tell(f"serve {self._in_words(batch, scheduled)}")
        for running, request in zip(scheduled, batch.requests, strict=True):
            self._allocate(running, request.seq_len)
        keys = [
            torch.cat([running.keys, self._numbers(count, self.dims.kv_width)])
            for running, count in zip(decodes, new, strict=True)
        ] + [
            running.keys[: running.computed + count]
            for running, count in zip(prefills, chunks, strict=True)
        ]
        served = self._run(batch, scheduled, keys)
        self._check(batch, scheduled, keys, *served)
        for running, request, tokens in zip(scheduled, batch.requests, keys, strict=True):
            if not running.prefilling:
                accepted = draw.draw(st.integers(1, request.query_len), label="accepted")
                running.keys = tokens[: running.computed + accepted]
                running.computed = len(running.keys)
            else:
                running.computed = request.seq_len

    def _in_words(self, batch: Batch, scheduled: list[Running]) -> str:
        parts = [
            f"{request.query_len} of request {self.requests.index(running)} "
            f"after {running.computed}"
            for running, request in zip(scheduled, batch.requests, strict=True)
        ]
        return f"tokens: {', '.join(parts)}; {batch.padding} rows of padding"

    def _run(
        self, batch: Batch, scheduled: list[Running], keys: list[torch.Tensor]
    ) -> tuple[torch.Tensor, list[Served]]:
        x = self._numbers(batch.num_rows, self.dims.q_width)
        new_keys = torch.full((batch.num_rows, self.dims.kv_width), torch.nan)
        new_keys[: batch.num_tokens] = torch.cat(
            [
                tokens[request.positions.start :]
                for request, tokens in zip(batch.requests, keys, strict=True)
            ]
        )
        x[batch.num_tokens :] = torch.nan
        stride = self.case.layout.dcp * self.case.block_size
        step = ServedStep(
            batch=batch,
            block_tables=tuple(tuple(running.blocks) for running in scheduled),
            fresh_blocks=tuple(self.fresh),
            x=x,
            new_keys=new_keys,
            generation=self.generation,
            context_rows=stride * 2,
        )
        self.fresh = []
        return x, self.subject.run(self.case.layout, serving.serve, step)

    def _check(
        self,
        batch: Batch,
        scheduled: list[Running],
        keys: list[torch.Tensor],
        x: torch.Tensor,
        served: list[Served],
    ) -> None:
        case, layout = self.case, self.case.layout
        whole = dense.attention(
            self.dims,
            case.q_weight(self.generation),
            case.kv_b_weight(self.generation),
            x,
            [exact(tokens) for tokens in keys],
            batch,
            layout,
        )
        live = batch.num_tokens
        for rank, done in enumerate(served):
            expected = whole[:, oracle.columns_of(case, rank)]
            off, on = (output[:live] for output in done.outputs)
            check.bounded(off, expected, f"gather path on rank {rank}")
            check.bounded(on, expected, f"replicated path on rank {rank}")
            self._check_ledgers(batch, rank, *done.ledgers)
            assert [collective.kind for collective in done.ledgers[0]] == [
                collective.kind for collective in served[0].ledgers[0]
            ], f"rank {rank} issues other collectives than rank 0"
            assert done.slots == self._slots(batch, scheduled, rank), f"slots of rank {rank}"

    def _check_ledgers(
        self, batch: Batch, rank: int, off: list[Collective], on: list[Collective]
    ) -> None:
        heads = self.dims.num_heads // self.case.layout.tp
        shape = (batch.num_decode_tokens, heads, self.dims.kv_width)
        group = self.case.layout.dcp_group_of(rank)
        if batch.decodes:
            query = Collective("all_gather", group, shape, "torch.float32")
            assert_saves(on, off, query, f"rank {rank}")
        else:
            assert_same(on, off, f"rank {rank}")

    def _slots(self, batch: Batch, scheduled: list[Running], rank: int) -> list[int]:
        layout, size = self.case.layout, self.case.block_size
        dcp_rank = layout.dcp_group_of(rank).index(rank)
        slots = []
        for running, request in zip(scheduled, batch.requests, strict=True):
            local = layout.tokens_of(dcp_rank, request.seq_len)
            place = {token: index for index, token in enumerate(local)}
            for token in request.positions:
                index = place.get(token)
                slots.append(
                    -1 if index is None else running.blocks[index // size] * size + index % size
                )
        return slots

    def _numbers(self, rows: int, width: int) -> torch.Tensor:
        self.steps += 1
        return self.data.tensor(f"numbers.{self.steps}", rows, width)

    def _index(self, draw: st.DataObject) -> int:
        return draw.draw(st.integers(0, len(self.requests) - 1), label="request")

    def _room(self, decodes: list[Running]) -> int:
        return MOST_TOKENS - max((len(running.keys) for running in decodes), default=0)

    def _allocate(self, running: Running, tokens: int) -> None:
        local = len(self.case.layout.tokens_of(0, tokens))
        while len(running.blocks) * self.case.block_size < local:
            # The block that was freed last comes first, still holding somebody's keys.
            running.blocks.append(self.free.pop())
            self.fresh.append(running.blocks[-1])

    def _release(self, running: Running) -> None:
        self.free += running.blocks


# Its inner function is one run of the machine, and so an example like those of other properties.
run_once = get_state_machine_test(Serving, settings=LIMITS).hypothesis.inner_test  # type: ignore[attr-defined]


@clause(
    "DEC-1", "DEC-2", "DEC-5", "DEC-6", "DEC-7", "DEC-8", "KVS-1", "COM-1", "COM-2",
    needs=(Capability.REPLICATED_DECODE, Capability.PREFILL, Capability.MULTI_TOKEN_DECODE),
    effort=0.3,
)  # fmt: skip
@LIMITS
@given(run=st.data())
def test_serving(subject: Subject, run: st.DataObject) -> None:
    Serving.subject = subject
    run_once(run)

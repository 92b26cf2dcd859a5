"""Inputs that once broke somebody's implementation, as reported in public; see docs/public-bugs.md.

What Hypothesis prints of an example can be pasted here: each name in it is imported.
"""
# ruff: noqa: F401

from __future__ import annotations

import dataclasses

from fixtures.cases.absorbed import AbsorbedCase
from fixtures.cases.adapters import AdapterCase, Misfit, MisfitCase
from fixtures.cases.census import CensusCase, ChoiceCase
from fixtures.cases.checkpoint import CheckpointCase
from fixtures.cases.decode import DecodeCase, Fp8Cache
from fixtures.cases.engine import EngineCase, TokenCounts
from fixtures.cases.linear import LinearCase, Returns
from fixtures.cases.merge import EmptyShard, MergeCase
from fixtures.cases.metadata import MetadataCase
from fixtures.cases.module import ModuleCase
from fixtures.cases.module_adapters import ModuleAdapterCase
from fixtures.cases.overrides import GatherCase, Impossible, ImpossibleOverride, OverrideCase
from fixtures.cases.reload import ReloadCase
from fixtures.cases.startup import StartUp
from fixtures.cases.storage import SlotsCase
from fixtures.model.deepseek import Model
from fixtures.model.dims import Batch, MLADims, Request
from fixtures.model.engine import Runner, Serving
from fixtures.model.layout import Layout
from fixtures.model.numbers import Data, Pattern
from fixtures.model.options import Options, Switch
from fixtures.model.parallelism import Replicas
from fixtures.model.partials import PLAIN, Partials
from fixtures.model.quantization import Quantization, Scheme
from fixtures.model.rope import Rope


def _step(
    layout: Layout,
    batch: Batch,
    *,
    block_size: int = 1,
    rows: int = 1024,
    partials: Partials = PLAIN,
) -> DecodeCase:
    return DecodeCase(
        layout=layout,
        dims=MLADims(2 * layout.tp, 3, 2, 7, 5, 6),
        batch=batch,
        block_size=block_size,
        dtype="float32",
        data=Data(7),
        context_rows=rows,
        partials=partials,
    )


def _merge(layout: Layout, owners: tuple[tuple[int, ...], ...], empty: EmptyShard) -> MergeCase:
    return MergeCase(layout, 3, 8, owners, "float32", Data(7), empty=empty)


# Rows whose position is before the first key of most ranks.
BEFORE_THE_FIRST_LOCAL_KEY = _step(Layout(8, 8), Batch(decodes=(Request(4, 4),)))
# Requests with different numbers of query tokens.
RAGGED_QUERIES = _step(Layout(4, 4), Batch(decodes=(Request(13, 1), Request(9, 3), Request(2, 2))))
# Every drafted token of a request whose newest keys lie on different ranks.
NEWEST_KEYS_ON_EVERY_RANK = _step(Layout(4, 4), Batch(decodes=(Request(13, 4), Request(17, 4))))
# Contexts that end in different chunks, one of them empty.
CONTEXTS_IN_CHUNKS = _step(
    Layout(4, 4),
    Batch(prefills=(Request(38, 1), Request(4, 1), Request(65, 1), Request(1, 1))),
    block_size=4,
    rows=16,
)
# A short context beside a long one, and none: later chunks have no key of some requests.
CHUNKS_WITHOUT_KEYS = _step(
    Layout(2, 2), Batch(prefills=(Request(12, 2), Request(5, 2), Request(2, 2))), rows=4
)
# Three live rows in a batch of four.
ONE_ROW_OF_PADDING = _step(
    Layout(4, 2), Batch(decodes=(Request(5), Request(3), Request(9)), padding=1)
)
# Three requests in a graph of four rows, and a graph that is replayed for nobody, by backends that
# write nothing where there are no keys.
GRAPH_OF_FOUR_ROWS = _step(
    Layout(2, 2),
    Batch(decodes=(Request(5), Request(1), Request(9)), padding=1),
    partials=Partials(unwritten=True),
)
GRAPH_OF_NOBODY = _step(Layout(2, 2), Batch(padding=2), partials=Partials(unwritten=True))
# More rows than a kernel that is chosen by their number is tuned for.
HUNDREDS_OF_ROWS = dataclasses.replace(
    _step(Layout(2, 2), Batch(decodes=(Request(2), *(Request(1),) * 520))), dtype="bfloat16"
)
# A rank without keys of a request, whose kernel returns before it has written anything.
NOTHING_WRITTEN_FOR_EMPTY_SHARDS = _step(
    Layout(2, 2), Batch(decodes=(Request(1), Request(4))), partials=Partials(unwritten=True)
)
# A kernel that counts in powers of 2.
LSE_TO_BASE_2 = _step(
    Layout(2, 2), Batch(decodes=(Request(5), Request(2))), partials=Partials(base_2=True)
)
# Two stages of eight ranks that share a KV cache.
SIXTEEN_RANKS = (Replicas(Layout(8, 8), pp=2), _step(Layout(8, 8), Batch(decodes=(Request(11),))))
# Shards of 1 and of 7 keys.
UNEVEN_SHARDS = _merge(Layout(2, 2), ((0, 1, 1, 1, 1, 1, 1, 1),), EmptyShard.MINUS_INF)
# A rank without keys whose log-sum-exp was never written, or has the wrong sign.
UNWRITTEN_LSE = _merge(Layout(4, 4), ((0, 1, 2, 0), ()), EmptyShard.NAN)
PLUS_INF_LSE = _merge(Layout(4, 4), ((0, 1, 2, 0), ()), EmptyShard.PLUS_INF)
# All keys on one rank of the group.
KEYS_ON_ONE_RANK = _merge(Layout(4, 4), ((3, 3, 3), (1,)), EmptyShard.MINUS_INF)
# Two rows behind the last request's, as a graph leaves them, and no request for them.
TWO_ROWS_OF_PADDING = dataclasses.replace(
    _merge(Layout(2, 2), ((0, 1, 1), (1, 0), (), ()), EmptyShard.MASKED), padding=2
)
# A batch of nothing else, as vLLM's warm-up may leave a rank.
PADDING_OF_NO_REQUEST = dataclasses.replace(
    _merge(Layout(2, 2), ((), ()), EmptyShard.MASKED), padding=2
)
# Scores so large that a merged log-sum-exp is rounded by a part of 1.
SCORES_OF_60000 = dataclasses.replace(
    _merge(Layout(4, 4), ((0, 1, 2, 3, 0), (1, 3)), EmptyShard.MINUS_INF), score_level=6e4
)
# A kv_b_proj with one scale for all that a rank holds.
ONE_BLOCK = StartUp(
    Layout(1),
    MLADims(1, 3, 2, 7, 5, 6),
    True,
    Options(quantization=Quantization(Scheme.FP8_BLOCK, (8, 7))),
)


def _engine(
    layout: Layout,
    num_blocks: int,
    rounds: tuple[tuple[TokenCounts, ...], ...],
    transport: str,
    otherwise: bool,
) -> EngineCase:
    """An engine; ``otherwise`` with query LoRA, scheduled ahead, switched in the configuration."""
    return EngineCase(
        layout=layout,
        model=Model(MLADims(4, 6, 8, 10, 5, 32), otherwise, Data(7)),
        serving=Serving(
            block_size=2,
            num_blocks=num_blocks,
            prefix_caching=True,
            max_num_batched_tokens=16,
            max_num_seqs=4,
            max_model_len=32,
            transport=transport,
            runner=Runner.V1,
            async_scheduling=otherwise,
        ),
        rounds=rounds,
        by_field=otherwise,
        data=Data(8),
    )


# Three requests of 16 to 19 tokens take five blocks each, where there are nine for all.
PREEMPTED = _engine(
    Layout(4, 2),
    10,
    ((TokenCounts(0, 6, 12), TokenCounts(0, 7, 9), TokenCounts(0, 7, 12)),),
    "ag_rs",
    True,
)
# A second round shares ten tokens with the first: two blocks, and two tokens of a third.
PREFIX_REUSED = _engine(
    Layout(2, 2, 2),
    64,
    ((TokenCounts(10, 3, 12),), (TokenCounts(10, 5, 12), TokenCounts(9, 2, 7))),
    "a2a",
    False,
)

# Heads of two ranks, whose queries differ, over keys on both.
HEADS_OF_TWO_RANKS = ModuleCase(
    layout=Layout(2, 2),
    dims=MLADims(4, 3, 4, 7, 5, 6),
    batch=Batch(decodes=(Request(6), Request(5))),
    block_size=2,
    q_lora=True,
    llama_4_scaling=False,
    data=Data(7),
)
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

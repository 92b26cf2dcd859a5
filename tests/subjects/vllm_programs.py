"""Programs that look at what the vllm subject hands out."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from fixtures.model.dims import Batch, MLADims, Request
from fixtures.model.options import Switch
from fixtures.subjects.rank import RankSubject


@dataclass(frozen=True)
class Origins:
    """Where what a rank handed out comes from, as ``module.name`` of the classes.

    Attributes:
        classes: Of the linear layers, the group, the MLA layer and its metadata.
        group: World ranks of the DCP group.
    """

    classes: tuple[str, ...]
    group: tuple[int, ...]


def _name(of: object) -> str:
    kind = of if isinstance(of, type) else type(of)
    return f"{kind.__module__}.{kind.__qualname__}"


DIMS = MLADims(
    num_heads=12,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    kv_lora_rank=16,
    v_head_dim=10,
    q_width=24,
)


def origins(subject: RankSubject) -> Origins:
    kv_b_proj = subject.ColumnParallelLinear(
        DIMS.kv_lora_rank,
        DIMS.num_heads * (DIMS.qk_nope_head_dim + DIMS.v_head_dim),
        bias=False,
        params_dtype=torch.float32,
        prefix="kv_b_proj",
    )
    layer = subject.mla_attention(DIMS, kv_b_proj, dcp_q_replicate=False, dtype=torch.float32)
    table = torch.zeros(1, 2, dtype=torch.int32)
    metadata = subject.attn_metadata(Batch(decodes=(Request(3),)), table, 4)
    group = subject.dcp_group()
    of = (
        subject.ColumnParallelLinear,
        subject.DCPGroupColumnParallelLinear,
        group,
        layer,
        metadata,
    )
    return Origins(tuple(_name(cls) for cls in of), tuple(group.ranks))  # type: ignore[attr-defined]


def group_ranks(subject: RankSubject) -> tuple[int, ...]:
    return tuple(subject.dcp_group().ranks)  # type: ignore[attr-defined]


def merge_with_empty_shard(
    subject: RankSubject, transport: str, kernels: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Merge two rows of two heads a rank; the last rank has no keys, but NaN, in row 0.

    Returns:
        Output, log-sum-exp, and the output as float64 weighs it, of this rank's heads.
    """
    ranks, rank = subject.layout.dcp, subject.dcp_rank
    generator = torch.Generator().manual_seed(7)
    out = torch.randn(ranks, 2, 2 * ranks, 16, generator=generator)
    lse = 3 * torch.randn(ranks, 2, 2 * ranks, generator=generator)
    out[-1, 0], lse[-1, 0] = torch.nan, -torch.inf
    weights = lse.double().softmax(dim=0).unsqueeze(-1)
    expected = torch.where(weights > 0, out.double() * weights, 0.0).sum(dim=0)
    merged, merged_lse = subject.lse_combine(
        out[rank].clone(),
        lse[rank].clone(),
        return_lse=True,
        transport=transport,
        kernels=kernels,
    )
    mine = slice(None) if transport == "ag_ar" else slice(2 * rank, 2 * rank + 2)
    return merged, merged_lse, expected[:, mine]


@dataclass(frozen=True)
class Served:
    """One DeepSeek-V2 attention, served a prompt, then a mixed batch, then decodes.

    Attributes:
        outputs: ``[tokens, hidden_size]`` of each step.
        gathers: Shapes of what was all-gathered over the DCP group in the decode step.
        group_size: Of the query projection.
    """

    outputs: list[torch.Tensor]
    gathers: list[tuple[int, ...]]
    group_size: int


def serve(subject: RankSubject, env: str | None, q_lora: bool) -> Served:
    attention = subject.deepseek_attention(DIMS, switch=Switch(env), q_lora=q_lora)
    generator = torch.Generator().manual_seed(11)
    parameter: Any
    for name, parameter in attention.module.named_parameters():
        module: Any = attention.module.get_submodule(name.rsplit(".", 1)[0])
        if "layernorm" in name:
            parameter.data.fill_(1)
            continue
        weight = torch.randn(module.output_size, module.input_size, generator=generator)
        weight /= module.input_size**0.5
        if hasattr(module, "output_sizes"):
            for index, part in enumerate(weight.split(module.output_sizes)):
                parameter.weight_loader(parameter, part, index)
        else:
            parameter.weight_loader(parameter, weight)
    attention.mla_attention.process_weights_after_loading(torch.float32)  # type: ignore[operator]

    block_size = 4
    cache = torch.full((13, block_size, DIMS.kv_width), torch.nan)
    table = torch.arange(1, 13, dtype=torch.int32).view(2, 6)
    steps = (
        Batch(prefills=(Request(9, 9),)),
        Batch(decodes=(Request(10),), prefills=(Request(5, 5),)),
        Batch(decodes=(Request(13, 3), Request(6))),
    )
    outputs = []
    for batch in steps:
        hidden = torch.randn(batch.num_tokens, DIMS.q_width, generator=generator)
        rows = table[: len(batch.requests)]
        with subject.record_collectives() as ledger:
            outputs.append(subject.deepseek_step(attention, hidden, batch, rows, cache))
    ranks = subject.layout.dcp_group_of(subject.tp_rank)
    gathers = [
        collective.shape
        for collective in ledger
        if collective.kind == "all_gather" and collective.ranks == ranks
    ]
    return Served(outputs, gathers, getattr(attention.q_proj, "group_size", 1))


def warnings_of_a_class(subject: RankSubject, times: int) -> list[tuple[str, ...]]:
    """What is heard of a class that says once in a process that it ignores the switch."""
    from vllm.logger import init_logger
    from vllm.model_executor.models import sarvam

    init = sarvam.SarvamMLAAttention.__init__

    def speaking(self: Any, *args: Any, **kwargs: Any) -> None:
        init_logger("vllm.anywhere").warning_once("%s ignores it", type(self).__name__)
        init(self, *args, **kwargs)

    name = "vllm.model_executor.models.sarvam.SarvamMLAAttention"
    with mock.patch.object(sarvam.SarvamMLAAttention, "__init__", functools.wraps(init)(speaking)):
        return [
            subject.query_projections(name, DIMS, switch=Switch("1")).warnings for _ in range(times)
        ]

"""Which template shows a call, and the example's numbers in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fixtures.cases.decode import DecodeCase
from fixtures.cases.linear import LinearCase
from fixtures.cases.merge import EmptyShard, MergeCase
from fixtures.model.partials import PLAIN
from fixtures.model.quantization import UNQUANTIZED
from fixtures.oracle import decode as decode_oracle
from fixtures.oracle import linear as linear_oracle
from fixtures.oracle import merge as merge_oracle
from fixtures.programs import decode, group_linear, linear, merge
from gate.scripts.calls import Call
from gate.scripts.numbers import expression
from gate.scripts.stand_ins import merge_stand_ins

Context = Mapping[str, Any]


class NoScriptError(Exception):
    """No template shows a call; the message is a sentence on why."""


def context_of(call: Call) -> tuple[str, Context]:
    """Name of the template that shows ``call``, and what the template is filled with.

    Raises:
        NoScriptError: None does.
    """
    if call.program not in _FAMILIES:
        raise NoScriptError(f"no script shows {call} yet")
    template, fill = _FAMILIES[call.program]
    bound = inspect.signature(call.program).bind(None, *call.args, **call.kwargs)
    bound.apply_defaults()
    arguments = dict(list(bound.arguments.items())[1:])
    arguments |= arguments.pop("overrides", {})
    context = {"case": arguments["case"], "layout": call.layout, **fill(call, arguments)}
    return template, context


def _linear(call: Call, arguments: Mapping[str, Any]) -> Context:
    case: LinearCase = arguments["case"]
    if case.quantization != UNQUANTIZED:
        raise NoScriptError(f"no script shows quantized weights ({case.quantization}) yet")
    ranks = range(call.layout.tp)
    group = bool(arguments.get("group")) or call.program in (
        group_linear.local_view,
        group_linear.gather_group_output,
    )
    gathers = call.program in (linear.gather_output, group_linear.gather_group_output)
    shards = [(rank, call.layout.tp) for rank in ranks]
    overrides: list[dict[str, Any]] = [{} for _ in ranks]
    if group:
        dcp = call.layout.dcp
        shards = [(rank // dcp, call.layout.tp // dcp) for rank in ranks]
    elif call.program is linear.build_with_shard:
        overrides = [
            {"tp_rank": a, "tp_size": s, "disable_tp": arguments["disable_tp"]}
            for a, s in arguments["shards"]
        ]
        shards = [(0, 1)] * len(ranks) if arguments["disable_tp"] else arguments["shards"]
    elif call.program is linear.gather_output:
        stride, size = arguments["stride"], arguments["shards"]
        overrides = [{"tp_rank": rank // stride % size, "tp_size": size} for rank in ranks]
        shards = [(rank // stride % size, size) for rank in ranks]
    for override in overrides:
        override |= {"gather_output": True} if gathers else {}
    size = (case.output_size, case.input_size)
    bias = expression(case.data, f"bias.{case.generation}", case.output_size)
    return {
        "cls": "DCPGroupColumnParallelLinear" if group else "ColumnParallelLinear",
        "group": group,
        "gathers": gathers,
        "overrides": overrides,
        "shards": list(shards),
        "plain_loader": arguments.get("plain_loader", False),
        "weight": expression(
            case.data, f"weight.{case.generation}", *size, scale=case.input_size**-0.5
        ),
        "bias": bias if case.bias else "",
        "x": expression(case.data, "input", case.rows, case.input_size),
        "tolerance": linear_oracle.expected(case).error.max().item(),
    }


def _merge(call: Call, arguments: Mapping[str, Any]) -> Context:
    case: MergeCase = arguments["case"]
    if case.empty is EmptyShard.MASKED:
        raise NoScriptError("no script shows shards that are masked by their length yet")
    heads = case.num_heads * call.layout.dcp
    out, lse = merge_oracle.expected(case)
    return {
        "merge_stand_ins": merge_stand_ins(),
        "transport": arguments["transport"],
        "base_e": arguments["is_lse_base_on_e"],
        "scores": [
            expression(case.data, f"scores.{row}", heads, len(owners))
            for row, owners in enumerate(case.owners)
        ],
        "values": [
            expression(case.data, f"values.{row}", len(owners), case.head_dim)
            for row, owners in enumerate(case.owners)
        ],
        "without_keys": {EmptyShard.NAN: "nan", EmptyShard.PLUS_INF: "inf"}.get(case.empty, "-inf"),
        "tolerance": out.error.nan_to_num(0.0).max().item(),
        "lse_tolerance": lse.error.nan_to_num(0.0).max().item(),
    }


def _decode(call: Call, arguments: Mapping[str, Any]) -> Context:
    case: DecodeCase = arguments["case"]
    batch, dims = case.batch, case.dims
    if case.fp8 is not None:
        raise NoScriptError("no script shows a quantized KV cache yet")
    if case.partials != PLAIN:
        raise NoScriptError("no script shows a backend with manners of its own yet")
    if batch.prefills or batch.padding or any(r.query_len > 1 for r in batch.decodes):
        raise NoScriptError("scripts show steps of one new token a sequence alone yet")
    width = dims.qk_nope_head_dim + dims.v_head_dim
    return {
        "merge_stand_ins": merge_stand_ins(),
        "replicates": arguments["replicated"],
        "q_weight": expression(
            case.data,
            "q.0",
            *(dims.num_heads * dims.qk_head_dim, dims.q_width),
            scale=dims.q_width**-0.5,
        ),
        "kv_b_weight": expression(
            case.data,
            "kv_b.0",
            *(dims.num_heads * width, dims.kv_lora_rank),
            scale=dims.kv_lora_rank**-0.5,
        ),
        "x": expression(case.data, "x", batch.num_rows, dims.q_width),
        "keys": [
            expression(case.data, f"keys.{at}", request.seq_len, dims.kv_width)
            for at, request in enumerate(batch.decodes)
        ],
        "tolerance": decode_oracle.expected(case).error.max().item(),
    }


_FAMILIES: Mapping[Callable[..., Any], tuple[str, Callable[[Call, Mapping[str, Any]], Context]]] = {
    linear.build: ("linear.py.jinja", _linear),
    linear.build_with_shard: ("linear.py.jinja", _linear),
    linear.gather_output: ("linear.py.jinja", _linear),
    group_linear.gather_group_output: ("linear.py.jinja", _linear),
    group_linear.local_view: ("linear.py.jinja", _linear),
    merge.merge_partials: ("merge.py.jinja", _merge),
    decode.both_paths: ("decode.py.jinja", _decode),
}

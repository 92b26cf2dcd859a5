"""What each part of a decode step moves and computes, counted from its shapes.

A part is a kernel or a collective. Its time is a sum over what is counted here, see
``machine``: nothing in this module was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from gate.plan.deployment import BYTES, Deployment, Dtype


@dataclass(frozen=True, slots=True)
class Work:
    """One part, on one rank.

    Attributes:
        kind: Which constants of the machine it is charged by.
        weights: Bytes read that no other step left in a cache: weights, or the KV cache.
        activations: Bytes of inputs and outputs.
        flops: Floating-point operations.
        link: Bytes that this rank receives from others.
        hops: Ranks that a message passes after the first, in a ring.
    """

    kind: str
    weights: float = 0.0
    activations: float = 0.0
    flops: float = 0.0
    link: float = 0.0
    hops: int = 0


@dataclass(frozen=True, slots=True)
class Dims:
    """Widths of a head, in the symbols of the contract."""

    P: int
    R: int
    L: int
    Q: int


def projection(batch: int, heads: int, dims: Dims, dtype: Dtype) -> Work:
    """``[B, Q]`` to ``[B, heads, P + R]``; the output is bfloat16."""
    width, size = heads * (dims.P + dims.R), BYTES[dtype]
    return Work(
        f"projection-{dtype}",
        weights=width * dims.Q * size,
        activations=batch * (dims.Q * size + width * BYTES["bf16"]),
        flops=2.0 * batch * width * dims.Q,
    )


def absorption(batch: int, heads: int, dims: Dims) -> Work:
    """``[B, heads, P]`` by W_UK_T to ``[B, heads, L]``."""
    return Work(
        "absorption",
        weights=heads * dims.P * dims.L * BYTES["bf16"],
        activations=batch * heads * (dims.P + dims.L) * BYTES["bf16"],
        flops=2.0 * batch * heads * dims.P * dims.L,
    )


def assembly(batch: int, heads: int, dims: Dims, query_dtype: Dtype) -> Work:
    """Both halves of the query in one tensor; read once, written once."""
    width = dims.L + dims.R
    return Work(
        f"assembly-{query_dtype}",
        activations=batch * heads * width * (BYTES["bf16"] + BYTES[query_dtype]),
    )


def gather(
    batch: int, heads: int, ranks: int, dims: Dims, query_dtype: Dtype, kind: str = "gather"
) -> Work:
    """Gather of every rank's ``[B, heads, L + R]``: NCCL's, or of kind ``gather-direct``."""
    return Work(
        kind,
        link=(ranks - 1.0) * batch * heads * (dims.L + dims.R) * BYTES[query_dtype],
        hops=ranks - 2,
    )


def reordering(batch: int, heads: int, dims: Dims, query_dtype: Dtype) -> Work:
    """What the gather left rank by rank, row by row: read once, written once."""
    return Work(
        "reordering",
        activations=2.0 * batch * heads * (dims.L + dims.R) * BYTES[query_dtype],
    )


def attention(batch: int, heads: int, keys: int, dims: Dims) -> Work:
    """Every head of a row over the same ``keys`` of its request, in a bfloat16 cache.

    Kernels on Hopper compute tiles of 64 heads, filled or not.
    """
    tiled = -(-heads // 64) * 64
    return Work(
        "attention",
        weights=batch * keys * (dims.L + dims.R) * BYTES["bf16"],
        activations=batch * heads * (2.0 * dims.L + dims.R) * BYTES["bf16"],
        flops=2.0 * batch * tiled * keys * (2.0 * dims.L + dims.R),
    )


def merging(batch: int, heads: int, ranks: int, dims: Dims, kind: str = "merging") -> Work:
    """Partial outputs of the group's heads to the whole output of the rank's own.

    All-gather of the log-sum-exp, weights, reduce-scatter of the output; ``merging-impl`` and
    ``merging-vllm`` are those of impl and of vLLM's layer.
    """
    out = batch * heads * dims.L * BYTES["bf16"]
    return Work(kind, activations=4.0 * out, link=out * (ranks - 1.0) / ranks, hops=ranks - 2)


def dims_of(deployment: Deployment) -> Dims:
    """Widths of the deployment's model."""
    model = deployment.model
    return Dims(model.P, model.R, model.L, model.Q)


def query_of(
    deployment: Deployment,
    batch: int,
    replicated: bool,
    in_parts: bool = False,
    gather_kind: str = "gather",
) -> list[Work]:
    """Parts from the query projection to the group's query, on one rank.

    Args:
        deployment: The model over its ranks.
        batch: Tokens of the step.
        replicated: Project the group's heads, instead of gathering them.
        in_parts: A query that crosses no link goes to the backend in its two halves, as impl's
            does in bfloat16; else both are put together in one tensor, as vLLM's are.
        gather_kind: ``gather`` leaves the query rank by rank, to be reordered;
            ``gather-direct`` writes it to where it belongs, over symmetric memory.
    """
    dims, query = dims_of(deployment), deployment.query_dtype
    heads = deployment.Hg if replicated else deployment.h
    parts = [
        projection(batch, heads, dims, deployment.dtype),
        absorption(batch, heads, dims),
    ]
    if not (replicated and in_parts):
        parts.append(assembly(batch, heads, dims, query))
    if not replicated:
        parts.append(gather(batch, deployment.h, deployment.dcp, dims, query, gather_kind))
        if gather_kind == "gather":
            parts.append(reordering(batch, deployment.Hg, dims, query))
    return parts


def rest_of(deployment: Deployment, batch: int, context: int) -> list[Work]:
    """Parts behind the query, the same on both paths: attention and its merge."""
    dims, topk = dims_of(deployment), deployment.model.topk
    seen = context if topk is None else min(context, topk)
    keys = -(-seen // deployment.dcp)
    return [
        attention(batch, deployment.Hg, keys, dims),
        merging(batch, deployment.Hg, deployment.dcp, dims),
    ]

"""The parts of a decode step as operators of torch, in the order in which vLLM has them.

Weights of step i are other memory than those of the last step; inputs that a part would find in
the L2 are the same in each. The input of a float8 projection is rounded beforehand, because
both paths round the same.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from benchmarks.cost.pool import Pool
from benchmarks.cost.ranks import Communicator
from benchmarks.cost.shape import DTYPES, Shape
from benchmarks.cost.timing import Step


class Operators:
    """Makes steps of a shape.

    Args:
        pool: Where weights and inputs come from.
        shape: What they are of.
    """

    def __init__(self, pool: Pool, shape: Shape) -> None:
        self.pool, self.shape = pool, shape
        self.communicator = Communicator()
        self.P, self.R, self.L, self.Q = shape.dims
        device = pool.numbers(torch.bfloat16).device
        self.x = self._like(torch.randn(shape.batch, self.Q, device=device))
        self._row_scales = torch.ones(shape.batch, 1, device=device)
        self._column_scales = torch.ones(1, shape.group * (self.P + self.R), device=device)
        self.query_dtype = DTYPES[shape.dtype]

    def _like(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16).to(DTYPES[self.shape.dtype])

    def projected(self, heads: int, index: int) -> torch.Tensor:
        """``[B, heads, P + R]``."""
        rows = heads * (self.P + self.R)
        weight = self.pool.tensor((rows, self.Q), index, self.x.dtype)
        if self.shape.dtype == "bf16":
            out = F.linear(self.x, weight)
        else:
            out = torch._scaled_mm(
                self.x,
                weight.t(),
                scale_a=self._row_scales,
                scale_b=self._column_scales[:, :rows],
                out_dtype=torch.bfloat16,
            )
        return out.view(self.shape.batch, heads, self.P + self.R)

    def absorbed(self, q: torch.Tensor, index: int) -> torch.Tensor:
        """``[B, heads, L]`` of ``[B, heads, P + R]``."""
        batch, heads, _ = q.shape
        # From the other end of the pool, away from the projection's.
        W_UK_T = self.pool.tensor((heads, self.P, self.L), -1 - index, torch.bfloat16)
        out = q.new_empty(batch, heads, self.L)
        torch.bmm(q[..., : self.P].transpose(0, 1), W_UK_T, out=out.transpose(0, 1))
        return out

    def assembled(self, ql_nope: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        """``[B, heads, L + R]``, in the dtype in which it crosses the link."""
        if self.shape.dtype == "bf16":
            return torch.cat([ql_nope, q[..., self.P :]], dim=-1)
        out = torch.empty(*q.shape[:2], self.L + self.R, dtype=self.query_dtype, device=q.device)
        out[..., : self.L].copy_(ql_nope)
        out[..., self.L :].copy_(q[..., self.P :])
        return out

    def query(self, heads: int, index: int) -> torch.Tensor:
        """From the projection to the assembled query, without any exchange."""
        q = self.projected(heads, index)
        return self.assembled(self.absorbed(q, index), q)

    def gathered(self, query: torch.Tensor) -> torch.Tensor:
        """Every rank's query, rank by rank."""
        stacked = query.new_empty((self.shape.ranks, *query.shape))
        as_bytes = query.itemsize == 1
        self.communicator.all_gather_into_tensor(
            stacked.view(torch.uint8) if as_bytes else stacked,
            query.view(torch.uint8) if as_bytes else query,
        )
        return stacked

    def reordered(self, stacked: torch.Tensor) -> torch.Tensor:
        """``[B, group, L + R]`` of what was gathered."""
        return stacked.movedim(0, 1).reshape(self.shape.batch, -1, self.L + self.R)

    def merged(self, out: torch.Tensor, lse: torch.Tensor, rank: int) -> torch.Tensor:
        """``[B, heads, L]`` over every rank's keys: LSE gathered, outputs scattered and summed."""
        ranks = self.shape.ranks
        lses = lse.new_empty((ranks, *lse.shape))
        self.communicator.all_gather_into_tensor(lses, lse)
        weights = torch.softmax(lses, dim=0)[rank].to(out.dtype)
        weighted = (out * weights.unsqueeze(-1)).view(out.shape[0], ranks, -1, self.L)
        sent = weighted.movedim(1, 0).contiguous()
        received = sent.new_empty(sent.shape[1:])
        self.communicator.reduce_scatter_tensor(received, sent)
        return received

    def parts(self, heads: int) -> dict[str, Step]:
        """Each kernel by itself on ``heads`` heads, by its name in the rows."""
        q = self.projected(heads, 0)
        ql_nope = self.absorbed(q, 0)
        steps: dict[str, Step] = {
            "projection": lambda i: self.projected(heads, i),
            "assembly": lambda i: self.assembled(ql_nope, q),
        }
        if self.shape.dtype == "bf16":
            steps["absorption"] = lambda i: self.absorbed(q, i)
        return steps


def direct_gather(shape: Shape, query: torch.Tensor, rank: int) -> Step:
    """Every rank writes its query into every rank's final buffer, then all wait for all.

    This is what vLLM's direct gather does, by plain stores to each peer where that uses
    multicast, and with a launch for each peer where that has one.
    """
    symm_mem: Any = __import__(
        "torch.distributed._symmetric_memory", fromlist=["rendezvous", "empty"]
    )
    buffer = symm_mem.empty(
        (shape.batch, shape.group, shape.width), dtype=query.dtype, device=query.device
    )
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    mine = slice(rank * shape.heads, (rank + 1) * shape.heads)
    peers = [
        handle.get_buffer(peer, buffer.shape, buffer.dtype)[:, mine] for peer in range(shape.ranks)
    ]

    def step(index: int) -> None:
        for peer in peers:
            peer.copy_(query)
        handle.barrier(channel=0)

    return step

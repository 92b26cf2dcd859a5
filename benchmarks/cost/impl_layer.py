"""impl's own layers as steps, their weights swapped for those of step i."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.nn import Parameter

from benchmarks.cost.pool import Pool
from benchmarks.cost.ranks import Communicator
from benchmarks.cost.shape import Shape
from impl.config import CacheConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from impl.linear import ColumnParallelLinear, DCPGroupColumnParallelLinear
from impl.merge import _gather_and_weigh, cp_lse_ag_out_rs
from impl.mla_attention import MLAAttention
from impl.parallel_state import GroupCoordinator, ParallelState, set_parallel_state


class Emulated(Communicator):
    """A place in a group that is not there; good for building layers."""

    def __init__(self, size: int) -> None:
        self.rank_in_group, self.world_size = 0, size


class ImplLayer:
    """Query projections and MLA layer of one rank, plain and of the group; bfloat16.

    Args:
        pool: Where weights and inputs come from.
        shape: What they are of.
        communicator: The group; an emulated one where nothing is exchanged.
    """

    def __init__(self, pool: Pool, shape: Shape, communicator: Communicator) -> None:
        self.pool, self.shape = pool, shape
        self.P, self.R, self.L, self.Q = shape.dims
        self._group = GroupCoordinator(communicator)
        device = pool.numbers(torch.bfloat16).device
        self.x = torch.randn(shape.batch, self.Q, device=device).to(torch.bfloat16)
        rows = shape.group * (self.P + self.R)
        with self._active(), torch.device("meta"):
            self._plain = ColumnParallelLinear(self.Q, rows, bias=False)
            self._of_the_group = DCPGroupColumnParallelLinear(self.Q, rows, bias=False)
            kv_b = ColumnParallelLinear(self.L, shape.group * 2 * self.P, bias=False)
            self._attention = MLAAttention(
                num_heads=shape.heads,
                scale=shape.width**-0.5,
                qk_nope_head_dim=self.P,
                qk_rope_head_dim=self.R,
                v_head_dim=self.P,
                q_lora_rank=self.Q,
                kv_lora_rank=self.L,
                kv_b_proj=kv_b,
            )

    @contextlib.contextmanager
    def _active(self) -> Iterator[None]:
        state = ParallelState(tp=self._group, dcp=self._group)
        config = VllmConfig(ParallelConfig(self.shape.ranks, self.shape.ranks, 1), CacheConfig())
        with set_parallel_state(state), set_current_vllm_config(config):
            yield

    def _projection(self, replicated: bool, index: int) -> ColumnParallelLinear:
        """The layer of the rank's or the group's heads, with the weight of step ``index``."""
        heads = self.shape.group if replicated else self.shape.heads
        layer = self._of_the_group if replicated else self._plain
        weight = self.pool.tensor((heads * (self.P + self.R), self.Q), index, torch.bfloat16)
        layer._parameters["weight"] = Parameter(weight, requires_grad=False)
        return layer

    def query_rows(self, index: int) -> torch.Tensor:
        """``[B, group, P + R]``: the projection alone."""
        q = self._projection(True, index)(self.x)[0]
        return q.view(self.shape.batch, self.shape.group, self.P + self.R)

    def projected_mixed(
        self, x: torch.Tensor, decodes: int, index: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``decodes`` leading rows to the group's heads, and the others to the rank's own."""
        layer = self._projection(True, index)
        assert isinstance(layer, DCPGroupColumnParallelLinear)
        rest = layer.forward_local(x[decodes:]) if decodes < len(x) else None
        return layer(x[:decodes])[0], rest

    def query(self, replicated: bool, index: int) -> torch.Tensor:
        """From the projection to the rank's or the group's query in one tensor."""
        return self._attention._join(self.query_parts(replicated, index))

    def query_parts(self, replicated: bool, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """:meth:`query` in the two parts in which a backend takes what crosses no link."""
        heads = self.shape.group if replicated else self.shape.heads
        layer = self._projection(replicated, index)
        q = layer(self.x)[0].view(self.shape.batch, heads, self.P + self.R)
        W_UK_T = self.pool.tensor((heads, self.P, self.L), -1 - index, torch.bfloat16)
        return self._attention._absorb(q, W_UK_T)

    def gathered(self, query: torch.Tensor) -> torch.Tensor:
        """The group's query by impl's all-gather."""
        return self._group.all_gather(query, dim=1)

    def merged(self, out: torch.Tensor, lse: torch.Tensor, base_e: bool) -> torch.Tensor:
        """This rank's heads by impl's merge."""
        merged = cp_lse_ag_out_rs(out, lse, self._group, is_lse_base_on_e=base_e)
        assert isinstance(merged, torch.Tensor)
        return merged

    def weighed(
        self, out: torch.Tensor, lse: torch.Tensor, seq_lens: torch.Tensor | None
    ) -> torch.Tensor:
        """The merge up to its reduce-scatter, rows masked by ``seq_lens`` where given."""
        starts = None if seq_lens is None else torch.arange(len(out) + 1, device=out.device)
        return _gather_and_weigh(out, lse, self._group, True, seq_lens, starts)[0]

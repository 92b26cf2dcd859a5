"""vLLM's own layers and groups as steps, where vLLM can be imported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import Parameter

from benchmarks.cost.pool import Pool
from benchmarks.cost.ranks import Ranks
from benchmarks.cost.shape import Shape


class VllmGroups:
    """vLLM's groups over every rank of the run; made once.

    Raises:
        ImportError: There is no vLLM.
        RuntimeError: Its NCCL does not load, without which its reduce-scatter moves nothing.
    """

    def __init__(self, ranks: Ranks) -> None:
        from vllm.config import (
            CompilationConfig,
            CompilationMode,
            ParallelConfig,
            VllmConfig,
            set_current_vllm_config,
        )
        from vllm.distributed import parallel_state

        self._current = set_current_vllm_config
        self.config = VllmConfig(
            parallel_config=ParallelConfig(
                tensor_parallel_size=ranks.size,
                decode_context_parallel_size=ranks.size,
                distributed_executor_backend="external_launcher",
                disable_custom_all_reduce=True,
            ),
            compilation_config=CompilationConfig(mode=CompilationMode.NONE, custom_ops=["none"]),
        )
        with self.active():
            parallel_state.init_distributed_environment(
                ranks.size,
                ranks.rank,
                local_rank=ranks.rank,
                backend=dist.get_backend(),
            )
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=ranks.size,
                decode_context_model_parallel_size=ranks.size,
            )
            self.group: Any = parallel_state.get_dcp_group()
        pynccl = getattr(self.group.device_communicator, "pynccl_comm", None)
        if ranks.device.type == "cuda" and (pynccl is None or pynccl.disabled):
            raise RuntimeError("its wrapper loads no NCCL: set VLLM_NCCL_SO_PATH")

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Make its configuration the one that layers read."""
        with self._current(self.config):
            yield


class VllmLayer:
    """vLLM's projections, plain and of the group, and the decode's order of operators.

    Args:
        groups: vLLM's groups.
        pool: Where weights and inputs come from.
        shape: What they are of; bfloat16.
    """

    def __init__(self, groups: VllmGroups, pool: Pool, shape: Shape) -> None:
        from vllm.model_executor.layers import linear
        from vllm.v1.attention.ops import dcp

        self._dcp: Any = dcp
        self._context = dcp.CPTritonContext()
        self.groups, self.pool, self.shape = groups, pool, shape
        self.P, self.R, self.L, self.Q = shape.dims
        device = pool.numbers(torch.bfloat16).device
        self.x = torch.randn(shape.batch, self.Q, device=device).to(torch.bfloat16)
        rows = shape.group * (self.P + self.R)
        arguments = {"bias": False, "params_dtype": torch.bfloat16, "prefix": "q_b_proj"}
        with groups.active(), torch.device("meta"):
            self._plain: Any = linear.ColumnParallelLinear(self.Q, rows, **arguments)
            self._of_the_group: Any = linear.DCPGroupColumnParallelLinear(self.Q, rows, **arguments)

    def query(self, replicated: bool, index: int) -> torch.Tensor:
        """From the projection to the assembled query of the rank's or the group's heads."""
        heads = self.shape.group if replicated else self.shape.heads
        layer = self._of_the_group if replicated else self._plain
        rows = heads * (self.P + self.R)
        weight = self.pool.tensor((rows, self.Q), index, torch.bfloat16)
        layer._parameters["weight"] = Parameter(weight, requires_grad=False)
        q = layer(self.x)[0].view(self.shape.batch, heads, self.P + self.R)
        W_UK_T = self.pool.tensor((heads, self.P, self.L), -1 - index, torch.bfloat16)
        ql_nope = q.new_empty(self.shape.batch, heads, self.L)
        torch.bmm(q[..., : self.P].transpose(0, 1), W_UK_T, out=ql_nope.transpose(0, 1))
        return torch.cat([ql_nope, q[..., self.P :]], dim=-1)

    def gathered(self, query: torch.Tensor) -> torch.Tensor:
        """The group's query by vLLM's all-gather."""
        gathered: torch.Tensor = self.groups.group.all_gather(query, dim=1)
        return gathered

    def merged(self, out: torch.Tensor, lse: torch.Tensor, base_e: bool) -> torch.Tensor:
        """This rank's heads by vLLM's merge."""
        merged: torch.Tensor = self._dcp.cp_lse_ag_out_rs(
            out, lse, self.groups.group, ctx=self._context, is_lse_base_on_e=base_e
        )
        return merged

    def direct_gather(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """The direct gather over symmetric memory.

        Raises:
            RuntimeError: vLLM finds that it cannot be had here.
        """
        workspace = self._dcp.get_direct_dcp_q_gather_workspace(
            self.groups.group,
            self.x.device,
            self.shape.batch,
            self.shape.heads,
            self.shape.width,
            torch.bfloat16,
            1,
        )
        if workspace is None:
            raise RuntimeError("vLLM finds no multicast over this group")
        gather: Callable[[torch.Tensor], torch.Tensor] = workspace.gather
        return gather

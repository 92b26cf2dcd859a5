"""The ranks of a run: torchrun's, or one alone."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist


class Communicator:
    """Every rank as one group, as impl asks for its collectives."""

    def __init__(self) -> None:
        alone = not dist.is_initialized()
        self.rank_in_group = 0 if alone else dist.get_rank()
        self.world_size = 1 if alone else dist.get_world_size()

    def all_gather_into_tensor(self, output: torch.Tensor, input: torch.Tensor) -> None:
        # Flat, which every backend takes; gloo does not take stacked shapes.
        dist.all_gather_into_tensor(output.view(-1), input.reshape(-1))

    def reduce_scatter_tensor(self, output: torch.Tensor, input: torch.Tensor) -> None:
        dist.reduce_scatter_tensor(output.view(-1), input.reshape(-1))

    def all_reduce(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor) -> None:
        dist.all_to_all_single(output, input)


@dataclass(frozen=True)
class Ranks:
    """This process among the ranks.

    Attributes:
        rank: Its index.
        size: How many there are.
        device: What it runs on.
    """

    rank: int
    size: int
    device: torch.device

    def aligned(self) -> None:
        """Have every rank's stream go on from about the same moment."""
        if self.size > 1:
            dist.all_reduce(torch.zeros(1, device=self.device))

    def slowest(self, times: torch.Tensor) -> torch.Tensor:
        """Elementwise largest of every rank's ``times``."""
        if self.size == 1:
            return times
        shared = times.to(self.device)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return shared.cpu()

    def all_true(self, fine: bool) -> bool:
        """Whether ``fine`` on every rank."""
        return not bool(self.slowest(torch.tensor([float(not fine)], dtype=torch.float64)).item())


def join(kind: str) -> Ranks:
    """Join torchrun's group over NCCL or gloo; without torchrun be alone."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if kind == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(1)
    if size > 1:
        backend = "nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, device_id=device if kind == "cuda" else None)
    return Ranks(rank, size, device)


def leave() -> None:
    """Leave the group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()

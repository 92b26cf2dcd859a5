"""Process groups of the layers: who the TP and DCP neighbours are, and how to reach them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch


class Communicator(Protocol):
    """Collectives of one group, with torch.distributed's names and semantics."""

    rank_in_group: int
    world_size: int

    def all_gather_into_tensor(self, output: torch.Tensor, input: torch.Tensor) -> None: ...

    def reduce_scatter_tensor(self, output: torch.Tensor, input: torch.Tensor) -> None: ...

    def all_reduce(self, tensor: torch.Tensor) -> None: ...

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor) -> None: ...


class GroupCoordinator:
    """Collectives along any axis; one rank gathers and adds up without a communicator."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        self.rank_in_group = communicator.rank_in_group
        self.world_size = communicator.world_size

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """Concatenate every rank's ``input_`` along ``dim``, in rank order."""
        if self.world_size == 1:
            return input_
        # Not every backend carries float8, and none may convert it: it travels as its bytes.
        as_bytes = input_.dtype.is_floating_point and input_.dtype.itemsize == 1
        sent = input_.contiguous().view(torch.uint8) if as_bytes else input_.contiguous()
        stacked = sent.new_empty((self.world_size, *sent.shape))
        self.communicator.all_gather_into_tensor(stacked, sent)
        gathered = torch.cat(stacked.unbind(0), dim=dim)
        return gathered.view(input_.dtype) if as_bytes else gathered

    def reduce_scatter(self, input_: torch.Tensor, dim: int) -> torch.Tensor:
        """Sum every rank's ``input_`` and keep this rank's part of ``dim``.

        Raises:
            ValueError: The group does not divide the extent of ``dim``.
        """
        if input_.shape[dim] % self.world_size:
            raise ValueError(
                f"reduce_scatter along dim {dim} of shape {tuple(input_.shape)}: "
                f"{input_.shape[dim]} is not divisible by the {self.world_size} ranks"
            )
        stacked = torch.stack(input_.chunk(self.world_size, dim=dim))
        output = stacked.new_empty(stacked.shape[1:])
        self.communicator.reduce_scatter_tensor(output, stacked)
        return output

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        """Sum every rank's ``input_`` into a new tensor."""
        if self.world_size == 1:
            return input_
        output = input_.clone(memory_format=torch.contiguous_format)
        self.communicator.all_reduce(output)
        return output

    def all_to_all(self, input_: torch.Tensor) -> torch.Tensor:
        """Send ``input_[j]`` to rank j; what rank j sent here lands at ``[j]``.

        Args:
            input_: ``[world_size, ...]``.
        """
        send = input_.contiguous()
        output = torch.empty_like(send)
        self.communicator.all_to_all_single(output, send)
        return output


@dataclass(frozen=True)
class ParallelState:
    """The groups that one rank belongs to."""

    tp: GroupCoordinator
    dcp: GroupCoordinator


_current: ContextVar[ParallelState] = ContextVar("parallel_state")


@contextlib.contextmanager
def set_parallel_state(state: ParallelState) -> Iterator[None]:
    """Make ``state`` the groups that layers use inside the context."""
    token = _current.set(state)
    try:
        yield
    finally:
        _current.reset(token)


def _get() -> ParallelState:
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError(
            "no parallel state: build and run layers inside set_parallel_state(state)"
        ) from None


def get_tp_group() -> GroupCoordinator:
    """The tensor-parallel group of this rank."""
    return _get().tp


def get_dcp_group() -> GroupCoordinator:
    """The decode-context-parallel group of this rank."""
    return _get().dcp


def get_tensor_model_parallel_rank() -> int:
    """This rank's index in the tensor-parallel group."""
    return get_tp_group().rank_in_group


def get_tensor_model_parallel_world_size() -> int:
    """Number of ranks of the tensor-parallel group."""
    return get_tp_group().world_size

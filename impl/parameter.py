"""Parameters that load their own shard of a checkpoint tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch
from torch.nn import Parameter

from impl.layout import shard_range

WeightLoader = Callable[..., None]


class BasevLLMParameter(Parameter):
    """A parameter of which every rank holds the whole checkpoint tensor.

    Args:
        data: What it holds before anything is loaded.
        weight_loader: Called as ``weight_loader(parameter, loaded_weight)`` to load it.
        tp_rank: Shard that the layer holds.
        tp_size: Number of shards of the layer.
    """

    def __new__(cls, data: torch.Tensor, **kwargs: Any) -> Self:
        return super().__new__(cls, data, requires_grad=False)

    def __init__(
        self, data: torch.Tensor, *, weight_loader: WeightLoader, tp_rank: int, tp_size: int
    ) -> None:
        self.weight_loader = weight_loader
        self.tp_rank = tp_rank
        self.tp_size = tp_size

    def shard_of(self, loaded_weight: torch.Tensor) -> torch.Tensor:
        """The part of a checkpoint tensor that belongs here; a view of it."""
        return loaded_weight

    def load_column_parallel_weight(self, loaded_weight: torch.Tensor) -> None:
        """Copy this shard of a checkpoint tensor.

        Raises:
            ValueError: The shard has not the shape of the parameter.
        """
        shard = self.shard_of(loaded_weight)
        if shard.shape != self.shape:
            raise ValueError(
                f"shard {self.tp_rank} of {self.tp_size} of a checkpoint tensor of shape "
                f"{tuple(loaded_weight.shape)} has shape {tuple(shard.shape)}, but the "
                f"parameter has {tuple(self.shape)}"
            )
        self.data.copy_(shard)


class PerTensorScaleParameter(BasevLLMParameter):
    """One scale or offset of the whole tensor, ``[1]``, the same on every rank."""


class ColumnvLLMParameter(BasevLLMParameter):
    """A parameter sharded along ``output_dim``."""

    def __init__(self, data: torch.Tensor, *, output_dim: int, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.output_dim = output_dim

    def shard_of(self, loaded_weight: torch.Tensor) -> torch.Tensor:
        start, length = shard_range(
            loaded_weight.shape[self.output_dim],
            self.tp_rank,
            self.tp_size,
            "checkpoint tensor by tp_size",
        )
        return loaded_weight.narrow(self.output_dim, start, length)


class ModelWeightParameter(ColumnvLLMParameter):
    """A weight, ``[out, in]``."""


class ChannelQuantScaleParameter(ColumnvLLMParameter):
    """One scale for each output row, ``[out, 1]``."""


class GroupQuantScaleParameter(ModelWeightParameter):
    """One scale for each group of inputs of each output row, ``[out, in / group_size]``."""


class BlockQuantScaleParameter(ModelWeightParameter):
    """One scale for each block of the weight, ``[out / block, in / block]``, rounded up."""


class PackedvLLMParameter(ModelWeightParameter):
    """Several narrow numbers in each element."""

"""A low-rank adapter on a column-parallel linear layer, the DCP-group one included."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from impl.config import LoRAConfig
from impl.layout import shard_range
from impl.linear import ColumnParallelLinear


class ColumnParallelLinearWithLoRA(nn.Module):
    """``y = x A^T + x a^T b^T``, b sharded as the base layer is.

    Args:
        base_layer: The layer; its shard, and not the process's, is the adapter's.
        lora_config: Largest rank of an adapter.
    """

    def __init__(self, base_layer: ColumnParallelLinear, lora_config: LoRAConfig) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.max_lora_rank = lora_config.max_lora_rank
        rows, columns = base_layer.output_size_per_partition, base_layer.input_size
        # Of every adapter that may come, so that a captured graph finds the next one here. No
        # parameters: no checkpoint of the model holds them.
        self.lora_a = torch.zeros(self.max_lora_rank, columns, dtype=base_layer.params_dtype)
        self.lora_b = torch.zeros(rows, self.max_lora_rank, dtype=base_layer.params_dtype)

    @classmethod
    def can_replace_layer(cls, source_layer: nn.Module) -> bool:
        """Whether ``source_layer`` is column-parallel, by its class or one above it."""
        return isinstance(source_layer, ColumnParallelLinear)

    def set_lora(self, lora_a: torch.Tensor, lora_b: torch.Tensor) -> None:
        """Take an adapter in place of the one before.

        Args:
            lora_a: ``[rank, input_size]``.
            lora_b: ``[output_size, rank]``, every row of the whole layer.

        Raises:
            ValueError: The adapter does not fit the layer.
        """
        base, rank = self.base_layer, min(lora_a.shape[0], self.max_lora_rank)
        if (*lora_a.shape, *lora_b.shape) != (rank, base.input_size, base.output_size, rank):
            raise ValueError(
                f"{base.prefix or 'the layer'}: an adapter of {tuple(lora_a.shape)} and "
                f"{tuple(lora_b.shape)} does not fit {base.output_size} rows of "
                f"{base.input_size} columns with max_lora_rank {self.max_lora_rank}"
            )
        self.reset_lora()
        start, length = shard_range(base.output_size, base.tp_rank, base.tp_size, "rows of lora_b")
        self.lora_a[:rank].copy_(lora_a)
        self.lora_b[:, :rank].copy_(lora_b.narrow(0, start, length))

    def reset_lora(self) -> None:
        """Leave the base layer's output as it is."""
        self.lora_a.zero_()
        self.lora_b.zero_()

    def forward(
        self, input_: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """The base layer's output with the adapter's added; see its forward.

        Raises:
            NotImplementedError: The base layer gathers its output, each shard of which has
                another part of the adapter.
        """
        if self.base_layer.gather_output:
            raise NotImplementedError(
                f"{self.base_layer.prefix or 'the layer'}: an adapter with gather_output is not "
                "supported. Gather outside the layer, or leave the adapter out"
            )
        delta = F.linear(F.linear(input_, self.lora_a), self.lora_b)
        output = self.base_layer(input_)
        if isinstance(output, tuple):
            return output[0] + delta, output[1]
        return output + delta

    def forward_local(self, input_: torch.Tensor) -> torch.Tensor:
        """This rank's own columns of a group layer's output, with the adapter's added."""
        base: Any = self.base_layer
        local: torch.Tensor = base.forward_local(input_)
        rows = self.lora_b.chunk(base.group_size)[base.rank_in_group]
        return local + F.linear(F.linear(input_, self.lora_a), rows)

    def _local_view(self, out: torch.Tensor) -> torch.Tensor:
        view: torch.Tensor = self.base_layer._local_view(out)  # type: ignore[operator]
        return view

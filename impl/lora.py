"""A low-rank adapter on a column-parallel linear layer, the DCP-group one included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from impl.communication_op import tensor_model_parallel_all_reduce
from impl.config import LoRAConfig
from impl.layout import shard_range
from impl.linear import ColumnParallelLinear, RowParallelLinear

# Projections of a checkpoint that are parts of one layer, in the order of its rows.
FUSED = {"fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa")}


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


class RowParallelLinearWithLoRA(nn.Module):
    """``y = x A^T + x a^T b^T``, the columns of a sharded as those of A are.

    Args:
        base_layer: The layer.
        lora_a: ``[rank, input_size]``, every column of the whole layer.
        lora_b: ``[output_size, rank]``.
    """

    def __init__(
        self, base_layer: RowParallelLinear, lora_a: torch.Tensor, lora_b: torch.Tensor
    ) -> None:
        super().__init__()
        self.base_layer = base_layer
        start, length = shard_range(
            base_layer.input_size, base_layer.tp_rank, base_layer.tp_size, "columns of lora_a"
        )
        self.lora_a = lora_a.narrow(1, start, length)
        self.lora_b = lora_b

    def forward(self, input_: torch.Tensor) -> tuple[torch.Tensor, None]:
        """The sum over ranks of the base layer's part and the adapter's."""
        delta = F.linear(F.linear(input_, self.lora_a), self.lora_b)
        return self.base_layer(input_)[0] + tensor_model_parallel_all_reduce(delta), None


def put_adapters(
    module: nn.Module,
    adapters: Mapping[str, tuple[torch.Tensor, torch.Tensor]],
    lora_config: LoRAConfig,
) -> None:
    """Put low-rank adapters on the projections of an attention module, wherever it holds them.

    Args:
        module: Loaded.
        adapters: ``lora_a`` and ``lora_b`` by the projections' names in a checkpoint.
        lora_config: Largest rank of what a layer is given, parts of a fused one together.

    Raises:
        NotImplementedError: A projection is no linear layer that adapters can change, or
            kv_b_proj, whose weight is absorbed: its adapter would have no effect on decodes.
        ValueError: An adapter does not fit its layer.
    """
    waiting = dict(adapters)
    for name, layer in _projections(module):
        parts = FUSED.get(name, (name,))
        given = [waiting.pop(part, None) for part in parts]
        if all(part is None for part in given):
            continue
        if name == "kv_b_proj":
            raise NotImplementedError(
                "an adapter on kv_b_proj is not supported, as its weight is absorbed: leave it out"
            )
        _replace(module, layer, _adapted(layer, given, lora_config))
    if waiting:
        raise NotImplementedError(f"adapters on {', '.join(sorted(waiting))} are not supported")


def _projections(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Linear layers of a module by their names in it."""
    return [
        (path.rpartition(".")[2], layer)
        for path, layer in module.named_modules()
        if isinstance(layer, ColumnParallelLinear | RowParallelLinear)
    ]


def _adapted(
    layer: nn.Module,
    parts: list[tuple[torch.Tensor, torch.Tensor] | None],
    lora_config: LoRAConfig,
) -> nn.Module:
    """``layer`` with the adapters of its parts, in one."""
    if isinstance(layer, RowParallelLinear):
        [adapter] = parts
        assert adapter is not None
        return RowParallelLinearWithLoRA(layer, *adapter)
    assert isinstance(layer, ColumnParallelLinear)
    sizes = getattr(layer, "output_sizes", [layer.output_size])
    dtype = layer.params_dtype
    given = [
        (torch.zeros(0, layer.input_size, dtype=dtype), torch.zeros(size, 0, dtype=dtype))
        if part is None
        else part
        for part, size in zip(parts, sizes, strict=True)
    ]
    wrapped = ColumnParallelLinearWithLoRA(layer, lora_config)
    # Each part's rows see its own adapter alone.
    wrapped.set_lora(torch.cat([a for a, _ in given]), torch.block_diag(*(b for _, b in given)))
    return wrapped


def _replace(module: nn.Module, layer: nn.Module, adapted: nn.Module) -> None:
    for holder in list(module.modules()):
        for name, child in list(holder.named_children()):
            if child is layer and holder is not adapted:
                setattr(holder, name, adapted)

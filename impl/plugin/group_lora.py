"""vLLM's LoRA wrapper of a column-parallel layer, for the DCP group's projection as well.

It imports vLLM, so that nothing does but the mending that needs it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.lora.layers import ColumnParallelLinearWithLoRA
from vllm.model_executor.layers.linear import DCPGroupColumnParallelLinear


class DCPGroupColumnParallelLinearWithLoRA(ColumnParallelLinearWithLoRA):  # type: ignore[misc]
    """An adapter on the heads of the whole group.

    vLLM's own wrapper cuts lora_b by the layer's rank and size, which are the group's here.
    """

    @classmethod
    def can_replace_layer(
        cls,
        source_layer: nn.Module,
        lora_config: Any,
        packed_modules_list: list[str],
        model_config: Any = None,
    ) -> bool:
        """Whether ``source_layer`` is the group's projection.

        Raises:
            ValueError: It is, and adapters are fully sharded: their parts are exchanged between
                ranks that hold other parts.
        """
        if not isinstance(source_layer, DCPGroupColumnParallelLinear):
            return False
        if lora_config.fully_sharded_loras:
            raise ValueError(
                f"{source_layer.prefix}: fully_sharded_loras is not supported on a replicated "
                f"query projection. Leave it out, or switch dcp_q_replicate off"
            )
        return True

    def set_lora(
        self,
        index: int,
        lora_a: torch.Tensor | list[torch.Tensor],
        lora_b: torch.Tensor | list[torch.Tensor],
    ) -> None:
        """Take an adapter in place of the one before in slot ``index``.

        Args:
            index: The slot.
            lora_a: ``[rank, input_size]``, whose rank vLLM has compared with the largest.
            lora_b: ``[output_size, rank]``, every row of the whole layer; what vLLM warms up
                with has this rank's alone, and holds zeros.

        Raises:
            ValueError: The adapter does not fit the layer.
        """
        assert isinstance(lora_a, torch.Tensor)
        assert isinstance(lora_b, torch.Tensor)
        base, rank = self.base_layer, len(lora_a)
        fits = (*lora_a.shape, *lora_b.shape) == (rank, base.input_size, base.output_size, rank)
        if not fits and lora_b.any():
            raise ValueError(
                f"{base.prefix or 'the layer'}: an adapter of {tuple(lora_a.shape)} and "
                f"{tuple(lora_b.shape)} does not fit {base.output_size} rows of "
                f"{base.input_size} columns"
            )
        super().set_lora(index, lora_a, lora_b)

    @property
    def group_size(self) -> int:
        """Ranks whose heads the layer projects to."""
        size: int = self.base_layer.group_size
        return size

    def _local_view(self, out: torch.Tensor) -> torch.Tensor:
        view: torch.Tensor = self.base_layer._local_view(out)
        return view

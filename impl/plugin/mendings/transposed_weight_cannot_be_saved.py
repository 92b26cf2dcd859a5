"""A sharded state is saved, of a quantized model and of one with MLA layers: LIN-6.

Derived weights of an MLA layer are parameters too, views with gaps that no file takes; a model
that is loaded derives them anew, and has none before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from impl.plugin.mending import Mending, around

# Of an MLA layer, as the last part of a parameter's name.
DERIVED = ("W_UV", "W_UK_T", "W_UK_T_dcp_qrep")
MODULE = "vllm.model_executor.model_loader.sharded_state_loader"


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` with its dimensions as they follow each other in memory, largest stride first.

    It is the same memory, and contiguous wherever the order of the dimensions alone was not.
    """
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    return tensor.permute(sorted(range(tensor.ndim), key=lambda axis: -strides[axis]))


def filter_subtensors(
    original: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]],
    tensors: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """The tensors of which a state consists, as vLLM chooses them, each in the order of memory.

    A file takes contiguous tensors alone. What is loaded is written through the same view.
    """
    return original(
        {
            key: in_memory_order(tensor)
            for key, tensor in tensors.items()
            if key.rpartition(".")[2] not in DERIVED
        }
    )


def change(module: Any) -> None:
    """Let the search for shared memory see transposed weights."""
    around(module.ShardedStateLoader, "_filter_subtensors", filter_subtensors)


MENDING = Mending("transposed_weight_cannot_be_saved", ("0.32.0", "0.33.0"), {MODULE: change})

"""Checkpoints, loaded by name into a module, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


def load_weights(module: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Load a checkpoint's tensors, in whatever order they come, through their own loaders.

    A scale that nothing was loaded into would hold whatever the memory held before.

    Args:
        module: Its parameters carry a ``weight_loader``.
        weights: Names of parameters within ``module``, with the whole tensors.

    Raises:
        ValueError: A tensor belongs to no parameter, or a parameter got none; names them.
    """
    parameters = dict(module.named_parameters())
    missing = set(parameters)
    for name, tensor in weights:
        if name not in parameters:
            raise ValueError(f"the checkpoint's {name} belongs to none of {sorted(parameters)}")
        parameter = parameters[name]
        parameter.weight_loader(parameter, tensor)  # type: ignore[attr-defined]
        missing.discard(name)
    if missing:
        raise ValueError(f"the checkpoint lacks {', '.join(sorted(missing))}")

"""What a step tells its layers without passing it through the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from impl.metadata import MLACommonMetadata


@dataclass(frozen=True)
class ForwardContext:
    """One step.

    Attributes:
        attn_metadata: The batch, by layer name.
        slot_mapping: ``[num_actual_tokens]`` int64 slots of the step's tokens, by layer name.
        no_compile_layers: The attention layers that custom operators call, by layer name.
    """

    attn_metadata: Mapping[str, MLACommonMetadata]
    slot_mapping: Mapping[str, torch.Tensor]
    no_compile_layers: Mapping[str, Any] = field(default_factory=dict)


_current: ContextVar[ForwardContext] = ContextVar("forward_context")


@contextlib.contextmanager
def set_forward_context(context: ForwardContext) -> Iterator[None]:
    """Make ``context`` the one that layers read."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def get_forward_context() -> ForwardContext:
    """The step that is running.

    Raises:
        RuntimeError: None is.
    """
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError(
            "no forward context: call layers inside set_forward_context(context)"
        ) from None

"""TRITON_MLA returns its log-sum-exp in float32: MRG-5."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch

from impl.plugin.mending import Mending, around

MODULE = "vllm.v1.attention.backends.mla.triton_mla"
# Of the call of forward_mqa that is under way: the kernel is launched within it.
_lse: ContextVar[list[torch.Tensor]] = ContextVar("lse")


def launch(
    original: Callable[..., None],
    q: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> None:
    """The launch of its kernel, which writes the LSE in the dtype of the buffer it gets."""
    exact = lse.float()
    _lse.get().append(exact)
    original(q, k_buffer, v_buffer, o, exact, *args, **kwargs)


def forward_mqa(
    original: Callable[..., tuple[torch.Tensor, torch.Tensor | None]], *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The decode, with the LSE that the kernel wrote.

    Returns:
        Output ``[rows, heads, kv_lora_rank]`` in the query's dtype, LSE ``[rows, heads]`` in
        float32.
    """
    written: list[torch.Tensor] = []
    token = _lse.set(written)
    try:
        output, lse = original(*args, **kwargs)
    finally:
        _lse.reset(token)
    return output, written[0] if written else lse


def change(module: Any) -> None:
    """Give the kernel a float32 buffer."""
    around(module, "decode_attention_fwd", launch)
    around(module.TritonMLAImpl, "forward_mqa", forward_mqa)


MENDING = Mending("triton_mla_rounds_lse", ("0.32.0", "0.33.0"), {MODULE: change})

"""Custom operators: what a compiled model calls in place of the attention layer."""

from __future__ import annotations

import torch

from impl.forward_context import get_forward_context


@torch.library.custom_op("dcp_qrep::unified_mla_attention_with_output", mutates_args=("output",))
def unified_mla_attention_with_output(
    q: torch.Tensor,
    kv_c_normed: torch.Tensor,
    k_pe: torch.Tensor,
    output: torch.Tensor,
    layer_name: str,
    q_dcp_replicated: torch.Tensor | None = None,
) -> None:
    """Store the step's keys and attend, by the layer of that name; see ``MLAAttention.forward``."""
    layer = get_forward_context().no_compile_layers[layer_name]
    layer.forward_with_context(q, kv_c_normed, k_pe, output, q_dcp_replicated)


@unified_mla_attention_with_output.register_fake
def _(
    q: torch.Tensor,
    kv_c_normed: torch.Tensor,
    k_pe: torch.Tensor,
    output: torch.Tensor,
    layer_name: str,
    q_dcp_replicated: torch.Tensor | None = None,
) -> None:
    return None

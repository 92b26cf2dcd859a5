"""DeepSeek-V2's attention: its projections, and the decision how the query is projected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import Parameter

from impl.backends.torch_mla import TorchMLAImpl
from impl.config import VllmConfig
from impl.layernorm import RMSNorm
from impl.layout import divide
from impl.linear import ColumnParallelLinear, DCPGroupColumnParallelLinear, RowParallelLinear
from impl.mla import MLAModules, MultiHeadLatentAttentionWrapper
from impl.parallel_state import get_tensor_model_parallel_world_size
from impl.replication import MLAProjections, decide_dcp_q_replicate
from impl.rotary_embedding import get_rope


class DeepSeekV2FusedQkvAProjLinear(ColumnParallelLinear):
    """``q_a_proj`` and ``kv_a_proj_with_mqa`` of the checkpoint in one weight, on every rank.

    Args:
        input_size: Width of the hidden states.
        output_sizes: Rows of each.
        prefix: Name of the layer.
    """

    def __init__(self, input_size: int, output_sizes: Sequence[int], prefix: str = "") -> None:
        self.output_sizes = list(output_sizes)
        super().__init__(input_size, sum(output_sizes), bias=False, prefix=prefix, disable_tp=True)

    def weight_loader_v2(  # type: ignore[override]
        self, param: Parameter, loaded_weight: torch.Tensor, loaded_shard_id: int
    ) -> None:
        """Copy one of the checkpoint's weights to its rows.

        Args:
            param: A parameter of this layer.
            loaded_weight: The whole weight.
            loaded_shard_id: Its index in output_sizes.

        Raises:
            ValueError: The weight has not that many rows.
        """
        rows = self.output_sizes[loaded_shard_id]
        if tuple(loaded_weight.shape) != (rows, self.input_size):
            raise ValueError(
                f"{self.prefix}: part {loaded_shard_id} of the weight has shape "
                f"{tuple(loaded_weight.shape)}, but should have {(rows, self.input_size)}"
            )
        start = sum(self.output_sizes[:loaded_shard_id])
        param.data[start : start + rows].copy_(loaded_weight)


class DeepseekV2MLAAttention(nn.Module):
    """The attention of one decoder layer.

    Args:
        vllm_config: Decides whether the query projection is replicated.
        hidden_size: Width of the hidden states.
        num_heads: Heads of the whole model.
        qk_nope_head_dim: Width of a head's query without position.
        qk_rope_head_dim: Width of a head's rotary query.
        v_head_dim: Width of a head's value.
        q_lora_rank: Width of the compressed query; None projects the hidden states.
        kv_lora_rank: Width of a token's compressed key and value.
        rope_parameters: Of the checkpoint's configuration; None for no positions.
        rms_norm_eps: Of the normalisations.
        prefix: Name of the layer.
        attn_backend: Its decode kernel.

    Attributes:
        q_b_proj: The query projection behind the compressed query; None without one.
        q_proj: The query projection where there is no compressed query, else None.
        kv_b_proj: Up-projection of keys and values.
        mla_attn: The MLA module, and in it the MLA layer.

    Raises:
        ValueError: The ranks do not divide the heads, or see :func:`decide_dcp_q_replicate`.
        NotImplementedError: See :func:`decide_dcp_q_replicate`.
    """

    q_b_proj: ColumnParallelLinear | None
    q_proj: ColumnParallelLinear | None

    def __init__(
        self,
        vllm_config: VllmConfig,
        hidden_size: int,
        num_heads: int,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        v_head_dim: int,
        q_lora_rank: int | None,
        kv_lora_rank: int,
        rope_parameters: Mapping[str, Any] | None,
        rms_norm_eps: float = 1e-6,
        prefix: str = "",
        attn_backend: type[TorchMLAImpl] = TorchMLAImpl,
    ) -> None:
        super().__init__()
        num_local_heads = divide(
            num_heads, get_tensor_model_parallel_world_size(), "heads by tensor parallel size"
        )
        qk_head_dim = qk_nope_head_dim + qk_rope_head_dim
        name = "q_proj" if q_lora_rank is None else "q_b_proj"
        projections = MLAProjections(
            prefix, num_heads, name, qk_head_dim, qk_nope_head_dim + v_head_dim
        )
        replicate = decide_dcp_q_replicate(vllm_config, projections, attn_backend)
        q_proj_cls = DCPGroupColumnParallelLinear if replicate else ColumnParallelLinear
        latent = kv_lora_rank + qk_rope_head_dim
        self.fused_qkv_a_proj = self.kv_a_proj_with_mqa = self.q_a_layernorm = None
        if q_lora_rank is None:
            self.kv_a_proj_with_mqa = ColumnParallelLinear(
                hidden_size,
                latent,
                bias=False,
                prefix=f"{prefix}.kv_a_proj_with_mqa",
                disable_tp=True,
            )
        else:
            self.fused_qkv_a_proj = DeepSeekV2FusedQkvAProjLinear(
                hidden_size, [q_lora_rank, latent], prefix=f"{prefix}.fused_qkv_a_proj"
            )
            self.q_a_layernorm = RMSNorm(q_lora_rank, rms_norm_eps)
        q_proj = q_proj_cls(
            hidden_size if q_lora_rank is None else q_lora_rank,
            num_heads * qk_head_dim,
            bias=False,
            quant_config=vllm_config.quant_config,
            prefix=f"{prefix}.{name}",
        )
        self.q_proj = q_proj if q_lora_rank is None else None
        self.q_b_proj = None if q_lora_rank is None else q_proj
        self.kv_a_layernorm = RMSNorm(kv_lora_rank, rms_norm_eps)
        self.kv_b_proj = ColumnParallelLinear(
            kv_lora_rank,
            num_heads * (qk_nope_head_dim + v_head_dim),
            bias=False,
            quant_config=vllm_config.quant_config,
            prefix=f"{prefix}.kv_b_proj",
        )
        self.rotary_emb = (
            None if rope_parameters is None else get_rope(qk_rope_head_dim, rope_parameters)
        )
        self.o_proj = RowParallelLinear(
            num_heads * v_head_dim, hidden_size, prefix=f"{prefix}.o_proj"
        )
        self.mla_attn = MultiHeadLatentAttentionWrapper(
            hidden_size=hidden_size,
            num_heads=num_local_heads,
            scale=qk_head_dim**-0.5
            * (1.0 if self.rotary_emb is None else self.rotary_emb.score_scale),
            qk_nope_head_dim=qk_nope_head_dim,
            qk_rope_head_dim=qk_rope_head_dim,
            v_head_dim=v_head_dim,
            q_lora_rank=q_lora_rank,
            kv_lora_rank=kv_lora_rank,
            mla_modules=MLAModules(
                kv_a_layernorm=self.kv_a_layernorm,
                kv_b_proj=self.kv_b_proj,
                rotary_emb=self.rotary_emb,
                o_proj=self.o_proj,
                fused_qkv_a_proj=self.fused_qkv_a_proj,
                kv_a_proj_with_mqa=self.kv_a_proj_with_mqa,
                q_a_layernorm=self.q_a_layernorm,
                q_b_proj=self.q_b_proj,
                q_proj=self.q_proj,
            ),
            cache_config=vllm_config.cache_config,
            prefix=prefix,
            attn_backend=attn_backend,
        )

    def forward(
        self,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        llama_4_scaling: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`MultiHeadLatentAttentionWrapper.forward`."""
        output: torch.Tensor = self.mla_attn(positions, hidden_states, llama_4_scaling)
        return output

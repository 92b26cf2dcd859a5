"""DeepSeek-V2's attention, as far as it decides how the query is projected."""

from __future__ import annotations

from torch import nn

from impl.config import VllmConfig, use_dcp_q_replicate
from impl.layout import divide
from impl.linear import ColumnParallelLinear, DCPGroupColumnParallelLinear
from impl.mla_attention import MLAAttention
from impl.parallel_state import get_tensor_model_parallel_world_size


class DeepseekV2MLAAttention(nn.Module):
    """The projections of one layer and the MLA layer behind them.

    Args:
        vllm_config: Decides whether the query projection is replicated.
        hidden_size: Width of the hidden states.
        num_heads: Heads of the whole model.
        qk_nope_head_dim: Width of a head's query without position.
        qk_rope_head_dim: Width of a head's rotary query.
        v_head_dim: Width of a head's value.
        q_lora_rank: Width of the compressed query; None projects the hidden states.
        kv_lora_rank: Width of a token's compressed key and value.
        prefix: Name of the layer.

    Attributes:
        q_b_proj: The query projection behind the compressed query; None without one.
        q_proj: The query projection where there is no compressed query, else None.
        kv_b_proj: Up-projection of keys and values.
        mla_attn: The MLA layer.

    Raises:
        ValueError: The ranks do not divide the heads.
        NotImplementedError: The configuration asks for a replication that is not supported.
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
        prefix: str = "",
    ) -> None:
        super().__init__()
        replicate = use_dcp_q_replicate(vllm_config.parallel_config)
        q_proj_cls = DCPGroupColumnParallelLinear if replicate else ColumnParallelLinear
        num_local_heads = divide(
            num_heads, get_tensor_model_parallel_world_size(), "heads by tensor parallel size"
        )
        qk_head_dim = qk_nope_head_dim + qk_rope_head_dim
        name = "q_proj" if q_lora_rank is None else "q_b_proj"
        q_proj = q_proj_cls(
            hidden_size if q_lora_rank is None else q_lora_rank,
            num_heads * qk_head_dim,
            bias=False,
            prefix=f"{prefix}.{name}",
        )
        self.q_proj = q_proj if q_lora_rank is None else None
        self.q_b_proj = None if q_lora_rank is None else q_proj
        self.kv_b_proj = ColumnParallelLinear(
            kv_lora_rank,
            num_heads * (qk_nope_head_dim + v_head_dim),
            bias=False,
            prefix=f"{prefix}.kv_b_proj",
        )
        self.mla_attn = MLAAttention(
            num_heads=num_local_heads,
            scale=qk_head_dim**-0.5,
            qk_nope_head_dim=qk_nope_head_dim,
            qk_rope_head_dim=qk_rope_head_dim,
            v_head_dim=v_head_dim,
            q_lora_rank=q_lora_rank,
            kv_lora_rank=kv_lora_rank,
            kv_b_proj=self.kv_b_proj,
            dcp_q_replicate=replicate,
            cache_config=vllm_config.cache_config,
            prefix=f"{prefix}.attn",
        )

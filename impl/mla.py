"""The MLA module around the attention layer: projections, rotary embedding, output."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from impl.backends.torch_mla import TorchMLAImpl
from impl.config import CacheConfig
from impl.forward_context import get_forward_context
from impl.linear import ColumnParallelLinear
from impl.mla_attention import MLAAttention


@dataclass
class MLAModules:
    """The layers of one MLA module.

    Attributes:
        kv_a_layernorm: Over the compressed keys.
        kv_b_proj: Up-projection of keys and values.
        rotary_emb: Called as ``rotary_emb(positions, query, key)``; None without positions.
        o_proj: Output projection of this rank's heads.
        fused_qkv_a_proj: Hidden states to the compressed query, then key and rotary key; with
            q-LoRA alone.
        kv_a_proj_with_mqa: Hidden states to compressed key and rotary key; without q-LoRA.
        q_a_layernorm: Over the compressed query.
        q_b_proj: Query projection behind it.
        q_proj: Query projection of the hidden states; without q-LoRA.
    """

    kv_a_layernorm: nn.Module
    kv_b_proj: ColumnParallelLinear
    rotary_emb: nn.Module | None
    o_proj: nn.Module
    fused_qkv_a_proj: nn.Module | None
    kv_a_proj_with_mqa: nn.Module | None
    q_a_layernorm: nn.Module | None
    q_b_proj: ColumnParallelLinear | None
    q_proj: ColumnParallelLinear | None


class MultiHeadLatentAttentionWrapper(nn.Module):
    """Hidden states in, hidden states out.

    Where the query projection is a :class:`DCPGroupColumnParallelLinear`, decode tokens are
    projected to the heads of the DCP group and prefill tokens to this rank's own alone: no
    other rank has a use for their query. Inside ``torch.compile`` the split of the batch is
    not known, and every token is projected to the group's heads.

    Args:
        hidden_size: Width of the hidden states.
        num_heads: Heads of this rank.
        scale: Softmax scale.
        qk_nope_head_dim: Width of a head's query without position.
        qk_rope_head_dim: Width of a head's rotary query.
        v_head_dim: Width of a head's value.
        q_lora_rank: Width of the compressed query, None without one.
        kv_lora_rank: Width of a token's compressed key and value.
        mla_modules: The layers.
        cache_config: The KV cache.
        prefix: Name of the module.
        attn_backend: Its decode kernel.

    Attributes:
        dcp_q_replicate: Whether the query projection holds the group's heads.
        mla_attn: The attention layer.

    Raises:
        ValueError: The layers do not fit q_lora_rank.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        scale: float,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        v_head_dim: int,
        q_lora_rank: int | None,
        kv_lora_rank: int,
        mla_modules: MLAModules,
        cache_config: CacheConfig | None = None,
        prefix: str = "",
        attn_backend: type[TorchMLAImpl] = TorchMLAImpl,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.qk_nope_head_dim = qk_nope_head_dim
        self.qk_rope_head_dim = qk_rope_head_dim
        self.qk_head_dim = qk_nope_head_dim + qk_rope_head_dim
        self.v_head_dim = v_head_dim
        self.q_lora_rank = q_lora_rank
        self.kv_lora_rank = kv_lora_rank
        self.fused_qkv_a_proj = mla_modules.fused_qkv_a_proj
        self.kv_a_proj_with_mqa = mla_modules.kv_a_proj_with_mqa
        self.q_a_layernorm = mla_modules.q_a_layernorm
        self.q_b_proj = mla_modules.q_b_proj
        self.q_proj = mla_modules.q_proj
        self.kv_a_layernorm = mla_modules.kv_a_layernorm
        self.kv_b_proj = mla_modules.kv_b_proj
        self.rotary_emb = mla_modules.rotary_emb
        self.o_proj = mla_modules.o_proj
        needed = (
            ("fused_qkv_a_proj", "q_a_layernorm", "q_b_proj")
            if q_lora_rank is not None
            else ("kv_a_proj_with_mqa", "q_proj")
        )
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(
                f"{prefix or 'the MLA module'}: q_lora_rank is {q_lora_rank}, which needs "
                f"{', '.join(needed)}, but {', '.join(missing)} is None"
            )
        self.dcp_q_replicate = bool(getattr(self._query_projection, "qrep_active", False))
        self.mla_attn = MLAAttention(
            num_heads=num_heads,
            scale=scale,
            qk_nope_head_dim=qk_nope_head_dim,
            qk_rope_head_dim=qk_rope_head_dim,
            v_head_dim=v_head_dim,
            q_lora_rank=q_lora_rank,
            kv_lora_rank=kv_lora_rank,
            kv_b_proj=self.kv_b_proj,
            dcp_q_replicate=self.dcp_q_replicate,
            cache_config=cache_config,
            prefix=f"{prefix}.attn",
            attn_backend=attn_backend,
        )

    @property
    def _query_projection(self) -> ColumnParallelLinear:
        projection = self.q_proj if self.q_lora_rank is None else self.q_b_proj
        assert projection is not None
        return projection

    def forward(
        self,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        llama_4_scaling: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend, as the forward context says.

        Args:
            positions: ``[rows]`` int64, global.
            hidden_states: ``[rows, hidden_size]``.
            llama_4_scaling: ``[rows, 1, 1]``, multiplied into the query after its rotation.

        Returns:
            ``[rows, hidden_size]``, the same on every rank.
        """
        query_input, kv_lora = self._compress(hidden_states)
        kv_c, k_pe = kv_lora.split([self.kv_lora_rank, self.qk_rope_head_dim], dim=-1)
        k_pe = k_pe.unsqueeze(1)
        rows = hidden_states.shape[0]
        projection = self._query_projection
        if self.dcp_q_replicate:
            split = self._rows_for_the_group(rows)
            parts = [(slice(split), projection(query_input[:split])[0])]
            if split < rows:
                # Of the group layer, or of an adapter around it.
                local = projection.forward_local(query_input[split:])  # type: ignore[operator]
                parts.append((slice(split, None), local))
        else:
            parts = [(slice(None), projection(query_input)[0])]
        queries, keys = [], []
        for part, query in parts:
            scaling = None if llama_4_scaling is None else llama_4_scaling[part]
            query, key = self._position(positions[part], query, k_pe[part], scaling)
            queries.append(query)
            keys.append(key)
        replicated = None
        if self.dcp_q_replicate:
            replicated = queries[0]
            queries[0] = projection._local_view(replicated)  # type: ignore[operator]
        attended = self.mla_attn(
            torch.cat(queries), self.kv_a_layernorm(kv_c), torch.cat(keys), replicated
        )
        output: torch.Tensor = self.o_proj(attended)[0]
        return output

    def _position(
        self,
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        llama_4_scaling: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rotate query ``[rows, H * (P + R)]`` and key ``[rows, 1, R]``, and scale the query.

        Works on each head alone, so that the group's heads are treated as every rank would
        treat its own.
        """
        heads = query.shape[-1] // self.qk_head_dim
        query = query.view(query.shape[0], heads, self.qk_head_dim)
        if self.rotary_emb is not None:
            q_nope, q_pe = query.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
            q_pe, key = self.rotary_emb(positions, q_pe, key)
            query = torch.cat([q_nope, q_pe], dim=-1)
        if llama_4_scaling is not None:
            query = query * llama_4_scaling
        return query, key

    def _compress(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the query projection reads, and ``[rows, kv_lora_rank + qk_rope_head_dim]``."""
        if self.q_lora_rank is None:
            assert self.kv_a_proj_with_mqa is not None
            return hidden_states, self.kv_a_proj_with_mqa(hidden_states)[0]
        assert self.fused_qkv_a_proj is not None
        assert self.q_a_layernorm is not None
        q_c, kv_lora = self.fused_qkv_a_proj(hidden_states)[0].split(
            [self.q_lora_rank, self.kv_lora_rank + self.qk_rope_head_dim], dim=-1
        )
        return self.q_a_layernorm(q_c), kv_lora

    def _rows_for_the_group(self, rows: int) -> int:
        """Leading rows whose query every rank of the group needs: the decode tokens."""
        if torch.compiler.is_compiling():
            return rows
        metadata = get_forward_context().attn_metadata[self.mla_attn.layer_name]
        return metadata.num_decode_tokens if metadata.num_prefills else rows

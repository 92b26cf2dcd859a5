"""The MLA attention layer: absorbed weights, the decode branch and the DCP merge."""

from __future__ import annotations

import torch
from torch import nn

from impl.backends.torch_mla import TorchMLAImpl
from impl.config import CacheConfig, get_current_vllm_config
from impl.linear import ColumnParallelLinear
from impl.merge import cp_lse_ag_out_rs
from impl.metadata import MLACommonMetadata
from impl.parallel_state import get_dcp_group


class MLAAttention(nn.Module):
    """Multi-head latent attention over a KV cache that the DCP group shares.

    Decode absorbs the key up-projection into the query and attends the compressed keys
    directly. On the gather path each rank absorbs its own heads and all-gathers the result
    over the DCP group; on the replicated path it is given the group's query, absorbs it with
    the group's ``W_UK_T_dcp_qrep``, and gathers nothing.

    Args:
        num_heads: Heads of this rank.
        scale: Softmax scale.
        qk_nope_head_dim: Width of a head's query without position.
        qk_rope_head_dim: Width of a head's rotary query.
        v_head_dim: Width of a head's value.
        q_lora_rank: Width of the compressed query, None without one.
        kv_lora_rank: Width of a token's compressed key and value.
        kv_b_proj: Up-projection of keys and values, this rank's heads; for each head first
            the key's rows, then the value's.
        dcp_q_replicate: Decode on a replicated query.
        cache_config: The KV cache.
        prefix: Name of the layer.

    Attributes:
        W_UK_T: ``[num_heads, qk_nope_head_dim, kv_lora_rank]``, from the query to the
            compressed keys; a view of kv_b_proj's weight where the dtypes agree.
        W_UV: ``[num_heads, kv_lora_rank, v_head_dim]``, from compressed values to values;
            likewise.
        W_UK_T_dcp_qrep: W_UK_T of every rank of the DCP group along the heads, in rank
            order; None without dcp_q_replicate.
    """

    W_UK_T: torch.Tensor
    W_UV: torch.Tensor
    W_UK_T_dcp_qrep: torch.Tensor | None

    def __init__(
        self,
        num_heads: int,
        scale: float,
        qk_nope_head_dim: int,
        qk_rope_head_dim: int,
        v_head_dim: int,
        q_lora_rank: int | None,
        kv_lora_rank: int,
        kv_b_proj: ColumnParallelLinear,
        dcp_q_replicate: bool = False,
        cache_config: CacheConfig | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = scale
        self.qk_nope_head_dim = qk_nope_head_dim
        self.qk_rope_head_dim = qk_rope_head_dim
        self.v_head_dim = v_head_dim
        self.q_lora_rank = q_lora_rank
        self.kv_lora_rank = kv_lora_rank
        self.kv_b_proj = kv_b_proj
        self.dcp_q_replicate = dcp_q_replicate
        self.layer_name = prefix
        self.dcp_group = get_dcp_group()
        config = get_current_vllm_config()
        self.cache_config = cache_config or config.cache_config
        self.impl = TorchMLAImpl(
            scale=scale,
            kv_lora_rank=kv_lora_rank,
            dcp_world_size=self.dcp_group.world_size,
            dcp_rank=self.dcp_group.rank_in_group,
            cp_kv_cache_interleave_size=config.parallel_config.cp_kv_cache_interleave_size,
        )
        # Derived from kv_b_proj, so they belong to no checkpoint.
        self.register_buffer("W_UV", None, persistent=False)
        self.register_buffer("W_UK_T", None, persistent=False)
        self.register_buffer("W_UK_T_dcp_qrep", None, persistent=False)

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Derive the absorbed weights from kv_b_proj; with DCP replication one all-gather.

        May run again after new weights were loaded: the derived tensors keep their storage,
        so that a captured graph computes with the new values.

        Args:
            act_dtype: dtype of the activations, and so of the derived weights.
        """
        head_rows = self.qk_nope_head_dim + self.v_head_dim
        weight = self.kv_b_proj.weight
        kv_b = weight.to(act_dtype).view(self.num_heads, head_rows, self.kv_lora_rank)
        W_UK_T, W_UV = kv_b.split([self.qk_nope_head_dim, self.v_head_dim], dim=1)
        self._derive("W_UV", W_UV.transpose(1, 2))
        self._derive("W_UK_T", W_UK_T)
        if self.dcp_q_replicate:
            self._derive("W_UK_T_dcp_qrep", self.dcp_group.all_gather(W_UK_T.contiguous(), dim=0))

    def _derive(self, name: str, value: torch.Tensor) -> None:
        """Hold ``value``, or copy it into what is held since the first time."""
        derived: torch.Tensor | None = getattr(self, name)
        if derived is None:
            setattr(self, name, value)
        else:
            derived.copy_(value)

    def forward_impl(
        self,
        q: torch.Tensor,
        k_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        output: torch.Tensor,
        q_dcp_replicated: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend, with this step's keys already in the cache.

        Args:
            q: ``[rows, num_heads, qk_nope_head_dim + qk_rope_head_dim]``, this rank's heads.
            k_c_normed: ``[rows, kv_lora_rank]``, this step's compressed keys.
            k_pe: ``[rows, 1, qk_rope_head_dim]``, their rotary part.
            kv_cache: ``[blocks, block_size, kv_lora_rank + qk_rope_head_dim]``.
            attn_metadata: The batch.
            output: ``[rows, num_heads * v_head_dim]``, written in place; rows behind
                num_actual_tokens are left alone.
            q_dcp_replicated: ``q`` of every rank of the DCP group along the heads; where it
                is given, decode uses it and gathers nothing.

        Returns:
            ``output``.
        """
        num_decode_tokens = attn_metadata.num_decode_tokens
        if num_decode_tokens:
            out = self._forward_decode(
                q[:num_decode_tokens],
                kv_cache,
                attn_metadata,
                None if q_dcp_replicated is None else q_dcp_replicated[:num_decode_tokens],
            )
            self._v_up_proj(out, output[:num_decode_tokens])
        return output

    def _forward_decode(
        self,
        q: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        q_dcp_replicated: torch.Tensor | None,
    ) -> torch.Tensor:
        """``[B, num_heads, kv_lora_rank]``: attention over the keys of the whole group."""
        if q_dcp_replicated is None:
            mqa_q = self.dcp_group.all_gather(self._absorb(q, self.W_UK_T), dim=1)
        else:
            assert self.W_UK_T_dcp_qrep is not None
            mqa_q = self._absorb(q_dcp_replicated, self.W_UK_T_dcp_qrep)
        out, lse = self.impl.forward_mqa(mqa_q, kv_cache, attn_metadata)
        if self.dcp_group.world_size == 1:
            return out
        merged = cp_lse_ag_out_rs(
            out, lse, self.dcp_group, is_lse_base_on_e=self.impl.lse_base_on_e
        )
        assert isinstance(merged, torch.Tensor)
        return merged

    def _absorb(self, q: torch.Tensor, W_UK_T: torch.Tensor) -> torch.Tensor:
        """``[B, H, P + R]`` to ``[B, H, L + R]``: the query in the keys' compressed space."""
        q_nope, q_pe = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        ql_nope = torch.bmm(q_nope.transpose(0, 1), W_UK_T).transpose(0, 1)
        return torch.cat([ql_nope, q_pe], dim=-1)

    def _v_up_proj(self, x: torch.Tensor, output: torch.Tensor) -> None:
        """``[B, H, L]`` to values, written to ``[B, H * V]``."""
        heads = output.view(-1, self.num_heads, self.v_head_dim)
        heads.copy_(torch.bmm(x.transpose(0, 1), self.W_UV).transpose(0, 1))

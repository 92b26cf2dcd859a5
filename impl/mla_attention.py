"""The MLA attention layer: absorbed weights, decode and prefill branches, the DCP merge."""

from __future__ import annotations

import torch
from torch import nn

from impl.backends.torch_mha import attend
from impl.backends.torch_mla import TorchMLAImpl
from impl.config import CacheConfig, get_current_vllm_config
from impl.custom_ops import unified_mla_attention_with_output
from impl.forward_context import get_forward_context
from impl.kv_cache import concat_and_cache_mla, dequantize, is_quantized_kv_cache, quantize_fp8
from impl.linear import ColumnParallelLinear
from impl.merge import DCP_COMBINE
from impl.metadata import ContextChunk, ContextPiece, MLACommonMetadata
from impl.parallel_state import get_dcp_group


class MLAAttention(nn.Module):
    """Multi-head latent attention over a KV cache that the DCP group shares.

    Prefill up-projects the keys and attends them with this rank's heads. Decode absorbs the
    key up-projection into the query and attends the compressed keys directly: on the gather
    path each rank absorbs its own heads and all-gathers the result over the DCP group; on the
    replicated path it is given the group's query, absorbs it with the group's
    ``W_UK_T_dcp_qrep``, and gathers nothing.

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
        attn_backend: Its decode kernel.

    Attributes:
        W_UK_T: ``[num_heads, qk_nope_head_dim, kv_lora_rank]``, from the query to the
            compressed keys; a view of kv_b_proj's weight where it is neither quantised nor
            of another dtype, else of W_UK_T_dcp_qrep where there is one.
        W_UV: ``[num_heads, kv_lora_rank, v_head_dim]``, from compressed values to values; a
            view of kv_b_proj's weight where W_UK_T may be one.
        kv_cache: ``[blocks, block_size, kv_lora_rank + qk_rope_head_dim]``, bound from outside.
        W_UK_T_dcp_qrep: W_UK_T of every rank of the DCP group along the heads, in rank
            order; None without dcp_q_replicate.
    """

    W_UK_T: torch.Tensor
    W_UV: torch.Tensor
    W_UK_T_dcp_qrep: torch.Tensor | None
    _q_scale: torch.Tensor
    _k_scale: torch.Tensor

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
        attn_backend: type[TorchMLAImpl] = TorchMLAImpl,
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
        self.kv_cache_dtype = self.cache_config.cache_dtype
        self.kv_cache = torch.tensor([])
        self.interleave = config.parallel_config.cp_kv_cache_interleave_size
        self.dcp_combine = DCP_COMBINE[config.parallel_config.dcp_comm_backend]
        self.impl = attn_backend(scale=scale, kv_lora_rank=kv_lora_rank)
        self.register_buffer("_q_scale", torch.tensor(1.0))
        self.register_buffer("_k_scale", torch.tensor(1.0))
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

        Raises:
            ValueError: The dtype is not that of the first time.
        """
        head_rows = self.qk_nope_head_dim + self.v_head_dim
        weight = self.kv_b_proj.quant_method.dequantize(self.kv_b_proj, act_dtype)
        kv_b = weight.view(self.num_heads, head_rows, self.kv_lora_rank)
        W_UK_T, W_UV = kv_b.split([self.qk_nope_head_dim, self.v_head_dim], dim=1)
        if self.dcp_q_replicate:
            self._derive("W_UK_T_dcp_qrep", self.dcp_group.all_gather(W_UK_T.contiguous(), dim=0))
            if not _shares_storage(weight, self.kv_b_proj):
                # The copy is dropped: of its halves one is among the group's already.
                assert self.W_UK_T_dcp_qrep is not None
                first = self.dcp_group.rank_in_group * self.num_heads
                W_UK_T = self.W_UK_T_dcp_qrep.narrow(0, first, self.num_heads)
                W_UV = W_UV.clone(memory_format=torch.contiguous_format)
        self._derive("W_UV", W_UV.transpose(1, 2))
        self._derive("W_UK_T", W_UK_T)

    def _derive(self, name: str, value: torch.Tensor) -> None:
        """Hold ``value``, or copy it into what is held since the first time."""
        derived: torch.Tensor | None = getattr(self, name)
        if derived is None:
            setattr(self, name, value)
        else:
            if derived.dtype != value.dtype:
                raise ValueError(
                    f"{name} of {self.layer_name or 'the layer'} was derived in "
                    f"{derived.dtype} and is held there, but is now asked for in "
                    f"{value.dtype}: process with the same dtype, or build the layer anew"
                )
            derived.copy_(value)

    def forward(
        self,
        q: torch.Tensor,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        q_dcp_replicated: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Store this step's keys and attend, as the forward context says.

        Args:
            q: ``[rows, num_heads, qk_nope_head_dim + qk_rope_head_dim]``, this rank's heads.
            kv_c_normed: ``[rows, kv_lora_rank]``, this step's compressed keys.
            k_pe: ``[rows, 1, qk_rope_head_dim]``, their rotary part.
            q_dcp_replicated: See :meth:`forward_impl`.

        Returns:
            ``[rows, num_heads * v_head_dim]``; zeros in rows behind num_actual_tokens.

        Raises:
            RuntimeError: There is no forward context.
        """
        output = q.new_zeros(q.shape[0], self.num_heads * self.v_head_dim)
        if torch.compiler.is_compiling():
            unified_mla_attention_with_output(
                q, kv_c_normed, k_pe, output, self.layer_name, q_dcp_replicated
            )
        else:
            self.forward_with_context(q, kv_c_normed, k_pe, output, q_dcp_replicated)
        return output

    def forward_with_context(
        self,
        q: torch.Tensor,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        output: torch.Tensor,
        q_dcp_replicated: torch.Tensor | None,
    ) -> None:
        """:meth:`forward` into ``output``."""
        context = get_forward_context()
        metadata = context.attn_metadata[self.layer_name]
        slots = context.slot_mapping[self.layer_name]
        concat_and_cache_mla(kv_c_normed, k_pe, self.kv_cache, slots, self._k_scale)
        self.forward_impl(q, kv_c_normed, k_pe, self.kv_cache, metadata, output, q_dcp_replicated)

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
            q: ``[rows, num_heads, qk_nope_head_dim + qk_rope_head_dim]``, this rank's heads;
                with q_dcp_replicated only its prefill rows are read.
            k_c_normed: ``[rows, kv_lora_rank]``, this step's compressed keys.
            k_pe: ``[rows, 1, qk_rope_head_dim]``, their rotary part.
            kv_cache: ``[blocks, block_size, kv_lora_rank + qk_rope_head_dim]``.
            attn_metadata: The batch.
            output: ``[rows, num_heads * v_head_dim]``, written in place; rows behind
                num_actual_tokens are left alone.
            q_dcp_replicated: ``q`` of every rank of the DCP group along the heads, at least
                its decode rows; where it is given, decode uses it and gathers nothing.

        Returns:
            ``output``.
        """
        decode = slice(attn_metadata.num_decode_tokens)
        prefill = slice(attn_metadata.num_decode_tokens, attn_metadata.num_actual_tokens)
        if attn_metadata.num_prefills:
            self._forward_prefill(
                q[prefill],
                k_c_normed[prefill],
                k_pe[prefill],
                kv_cache,
                attn_metadata,
                output[prefill],
            )
        if attn_metadata.num_decodes:
            out = self._forward_decode(
                q[decode],
                kv_cache,
                attn_metadata,
                None if q_dcp_replicated is None else q_dcp_replicated[decode],
            )
            self._v_up_proj(out, output[decode])
        return output

    def _forward_decode(
        self,
        q: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        q_dcp_replicated: torch.Tensor | None,
    ) -> torch.Tensor:
        """``[B, num_heads, kv_lora_rank]``: attention over the keys of the whole group."""
        mqa_q: torch.Tensor | tuple[torch.Tensor, torch.Tensor]
        if q_dcp_replicated is None:
            mqa_q = self._join(self._absorb(q, self.W_UK_T))
            mqa_q = self.dcp_group.all_gather(mqa_q, dim=1)
        else:
            assert self.W_UK_T_dcp_qrep is not None
            mqa_q = self._absorb(q_dcp_replicated, self.W_UK_T_dcp_qrep)
            if self._quantizes_query:
                mqa_q = self._join(mqa_q)
        out, lse = self.impl.forward_mqa(mqa_q, kv_cache, attn_metadata, self)
        if self.dcp_group.world_size == 1:
            return out
        decode = attn_metadata.decode
        assert decode is not None
        merged: torch.Tensor = self.dcp_combine(
            out,
            lse,
            self.dcp_group,
            is_lse_base_on_e=self.impl.lse_base_on_e,
            # Row by row, because an early row of a request may see no key of a shard that a
            # later one sees.
            seq_lens=decode.visible_seq_lens,
            query_start_loc=torch.arange(out.shape[0] + 1, device=out.device),
        )
        return merged

    def _absorb(self, q: torch.Tensor, W_UK_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The query in the keys' compressed space, ``[B, H, L]``, and its rotary part as it is.

        In two parts, as backends take it: whole, it would have to be copied.
        """
        q_nope, q_pe = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], dim=-1)
        return torch.bmm(q_nope.transpose(0, 1), W_UK_T).transpose(0, 1), q_pe

    @property
    def _quantizes_query(self) -> bool:
        return is_quantized_kv_cache(self.kv_cache_dtype) and self.impl.supports_quant_query_input

    def _join(self, parts: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """``[B, H, L + R]``: one tensor, to cross the group; float8 if the backend reads that."""
        mqa_q = torch.cat(parts, dim=-1)
        return quantize_fp8(mqa_q, self._q_scale) if self._quantizes_query else mqa_q

    def _v_up_proj(self, x: torch.Tensor, output: torch.Tensor) -> None:
        """``[B, H, L]`` to values, written to ``[B, H * V]``."""
        heads = output.view(-1, self.num_heads, self.v_head_dim)
        heads.copy_(torch.bmm(x.transpose(0, 1), self.W_UV).transpose(0, 1))

    def _forward_prefill(
        self,
        q: torch.Tensor,
        k_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        output: torch.Tensor,
    ) -> None:
        """Attend the up-projected keys: the step's own causally, then each context chunk."""
        prefill = attn_metadata.prefill
        assert prefill is not None
        queries = q.split(prefill.query_lens)
        new_keys = k_c_normed.split(prefill.query_lens), k_pe.squeeze(1).split(prefill.query_lens)
        attended = [
            attend(query, *self._up_project(kv_c, rotary), self.scale, causal=True)
            for query, kv_c, rotary in zip(queries, *new_keys, strict=True)
        ]
        for chunk in prefill.chunks:
            for piece, keys in self._gather_context(chunk, kv_cache, prefill.block_table, q.dtype):
                k, v = self._up_project(*keys.split([self.kv_lora_rank, k_pe.shape[-1]], dim=-1))
                context = attend(queries[piece.request], k, v, self.scale, causal=False)
                attended[piece.request] = attended[piece.request].merged_with(context)
        output.copy_(torch.cat([partial.out for partial in attended]).flatten(1))

    def _up_project(
        self, kv_c: torch.Tensor, k_pe: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys ``[K, num_heads, P + R]`` and values ``[K, num_heads, V]`` of ``[K, L]``."""
        kv = self.kv_b_proj(kv_c)[0].view(kv_c.shape[0], self.num_heads, -1)
        k_nope, v = kv.split([self.qk_nope_head_dim, self.v_head_dim], dim=-1)
        rotary = k_pe.unsqueeze(1).expand(-1, self.num_heads, -1)
        return torch.cat([k_nope, rotary], dim=-1), v

    def _gather_context(
        self,
        chunk: ContextChunk,
        kv_cache: torch.Tensor,
        block_table: torch.Tensor,
        dtype: torch.dtype,
    ) -> list[tuple[ContextPiece, torch.Tensor]]:
        """Every token of each piece, ``[tokens, L + R]`` in global order, in one all-gather."""
        ranks, interleave = self.dcp_group.world_size, self.interleave
        block_size = kv_cache.shape[1]
        device = kv_cache.device
        local, lengths = [], []
        for piece in chunk:
            rounds = -(-(piece.stop - piece.start) // (ranks * interleave))
            index = piece.start // ranks + torch.arange(rounds * interleave, device=device)
            # The last round may reach past the tokens of this rank, never past its block, which
            # holds whole rounds: nobody reads those rows.
            blocks = block_table[piece.request, index // block_size].long()
            local.append(kv_cache[blocks, index % block_size])
            lengths.append(index.shape[0])
        gathered = self.dcp_group.all_gather(torch.cat(local).unsqueeze(0), dim=0)
        pieces = []
        for piece, shards in zip(chunk, gathered.split(lengths, dim=1), strict=True):
            token = torch.arange(piece.stop - piece.start, device=device)
            run = token // interleave
            keys = shards[run % ranks, run // ranks * interleave + token % interleave]
            pieces.append((piece, dequantize(keys, self._k_scale, dtype)))
        return pieces


def _shares_storage(tensor: torch.Tensor, module: nn.Module) -> bool:
    """Whether ``tensor`` is a view of one of the module's parameters."""
    storage = tensor.untyped_storage().data_ptr()
    return any(one.untyped_storage().data_ptr() == storage for one in module.parameters())

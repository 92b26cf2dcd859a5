"""MLA decode attention by FlashInfer's paged MLA kernels, on Hopper GPUs."""

from __future__ import annotations

import functools
from typing import Any

import torch

from impl.backends.torch_mla import MLALayer
from impl.metadata import MLACommonDecodeMetadata, MLACommonMetadata

_WORKSPACE_BYTES = 128 << 20
# The only extents that FlashInfer's MLA kernels are compiled for.
_KV_LORA_RANK, _QK_ROPE_HEAD_DIM = 512, 64


@functools.cache
def _wrapper(device: torch.device, backend: str) -> Any:
    """One wrapper, and so one workspace, for every layer on ``device``."""
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    with torch.device("cpu"):
        return BatchMLAPagedAttentionWrapper(float_workspace_buffer=workspace, backend=backend)


class FlashInferMLAImpl:
    """Multi-query attention of absorbed queries over this rank's KV shard.

    Each row attends the first so many local keys of its request, which for several query
    tokens under DCP no causal flag can say; so every row is planned as a request of its own.

    Args:
        scale: Softmax scale.
        kv_lora_rank: Width of a token's compressed part, which is also its value; 512.
        backend: FlashInfer's ``fa2`` or ``fa3``.

    Raises:
        NotImplementedError: FlashInfer has no kernel for these extents.
    """

    can_return_lse_for_decode = True
    supports_quant_query_input = False
    lse_base_on_e = False

    def __init__(self, scale: float, kv_lora_rank: int, backend: str = "fa3") -> None:
        if kv_lora_rank != _KV_LORA_RANK:
            raise NotImplementedError(
                f"kv_lora_rank is {kv_lora_rank}, but FlashInfer's MLA kernels have "
                f"{_KV_LORA_RANK}: use the torch backend"
            )
        self.scale = scale
        self.kv_lora_rank = kv_lora_rank
        self.backend = backend

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata,
        layer: MLALayer,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend the local keys.

        Args:
            q: ``[B, H, 512 + 64]`` float16 or bfloat16, or its two parts, strided as they are.
            kv_c_and_k_pe_cache: ``[blocks, block_size, 512 + 64]`` in the dtype of ``q``.
            attn_metadata: The batch; its decode requests have B rows.
            layer: The layer that asks.

        Returns:
            ``[B, H, 512]`` in the dtype of ``q`` and the float32 log-sum-exp to base 2,
            ``[B, H]``: zeros and minus infinity for a row without local keys.

        Raises:
            NotImplementedError: The cache is quantised, or the extents are not 512 and 64.
        """
        if isinstance(q, torch.Tensor):
            q = q[..., : self.kv_lora_rank], q[..., self.kv_lora_rank :]
        ql_nope, q_pe = q
        rope = q_pe.shape[-1]
        if rope != _QK_ROPE_HEAD_DIM or kv_c_and_k_pe_cache.dtype != ql_nope.dtype:
            raise NotImplementedError(
                f"qk_rope_head_dim {rope} over a cache of {kv_c_and_k_pe_cache.dtype}, but "
                f"FlashInfer's MLA kernels have {_QK_ROPE_HEAD_DIM} and read {ql_nope.dtype}: use "
                "the torch backend"
            )
        decode = attn_metadata.decode
        assert decode is not None
        wrapper = _wrapper(q_pe.device, self.backend)
        self._plan(wrapper, decode, ql_nope, kv_c_and_k_pe_cache.shape[1])
        out = q_pe.new_empty(ql_nope.shape)
        lse = torch.empty(ql_nope.shape[:-1], dtype=torch.float32, device=q_pe.device)
        wrapper.run(query=q, kv_cache=kv_c_and_k_pe_cache, out=out, lse=lse, return_lse=True)
        return out, lse

    def _plan(
        self, wrapper: Any, decode: MLACommonDecodeMetadata, q: torch.Tensor, page_size: int
    ) -> None:
        from flashinfer.mla import MLAPlanMetadata

        lens = decode.visible_seq_lens
        pages = -(-lens // page_size)
        table = decode.block_table[decode.request_of_row]
        used = torch.arange(table.shape[1], device=q.device) < pages.unsqueeze(-1)
        starts = torch.nn.functional.pad(pages.cumsum(0), (1, 0)).to(torch.int32)
        plan = MLAPlanMetadata.csr(
            qo_indptr=torch.arange(len(lens) + 1, dtype=torch.int32, device=q.device),
            kv_indptr=starts,
            kv_indices=table[used],
            kv_len_arr=lens,
        )
        # FlashInfer pins host tensors that it makes on the default device.
        with torch.device("cpu"):
            wrapper.plan(
                metadata=plan,
                num_heads=q.shape[1],
                head_dim_ckv=self.kv_lora_rank,
                head_dim_kpe=_QK_ROPE_HEAD_DIM,
                page_size=page_size,
                causal=False,
                sm_scale=self.scale,
                q_data_type=q.dtype,
                kv_data_type=q.dtype,
                query_layout="split",
                kv_cache_layout="packed",
                lse_mode="base2",
            )

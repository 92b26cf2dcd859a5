"""The one decision whether a model's queries are replicated, made before any weight exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from impl import envs
from impl.config import VllmConfig, use_dcp_q_replicate
from impl.layout import check_row_blocks


class MLADecodeBackend(Protocol):
    """What a decode kernel says of itself.

    Attributes:
        can_return_lse_for_decode: Whether it returns the log-sum-exp, without which partial
            attention cannot be merged.
        q_pad_num_heads: Heads that it pads a query to; None where it takes any number.
    """

    can_return_lse_for_decode: ClassVar[bool]
    q_pad_num_heads: ClassVar[int | None]


@dataclass(frozen=True)
class MLAProjections:
    """The projections of a layer that replication concerns.

    Attributes:
        prefix: Name of the layer.
        num_heads: Heads of the whole model.
        q_proj: Name of the query projection within the layer.
        qk_head_dim: Its rows of one head.
        kv_head_dim: Rows of one head of ``kv_b_proj``.
    """

    prefix: str
    num_heads: int
    q_proj: str
    qk_head_dim: int
    kv_head_dim: int


def decide_dcp_q_replicate(
    config: VllmConfig, layer: MLAProjections, backend: type[MLADecodeBackend]
) -> bool:
    """Decide whether ``layer`` projects the query of its whole DCP group.

    Every layer of a model asks here before it builds anything, so that a combination that is
    not supported is refused on every rank while nothing is allocated.

    Args:
        config: Of the model.
        layer: Its projections, whose heads the tensor-parallel ranks divide.
        backend: Its decode kernel.

    Raises:
        NotImplementedError: The configuration asks for something that is not supported.
        ValueError: The switch spells no boolean, or a rank's rows would cut a quantisation
            block.
    """
    replicate = use_dcp_q_replicate(config)
    _check_kv_b_proj(config, layer)
    _check_log_sum_exp(config, backend)
    if replicate:
        _check_consecutive_ranks(config)
        _check_head_padding(config, layer, backend)
    _check_row_blocks(config, layer, replicate)
    return replicate


def _switch(config: VllmConfig) -> str:
    """The switch and its value, as a person would look for it."""
    if envs.dcp_q_replicate() is not None:
        return f"{envs.VLLM_DCP_Q_REPLICATE}={envs.raw()}"
    if config.parallel_config.dcp_q_replicate is not None:
        return f"dcp_q_replicate={config.parallel_config.dcp_q_replicate}"
    return f"dcp_q_replicate, which {config.architecture} has on by default,"


def _check_kv_b_proj(config: VllmConfig, layer: MLAProjections) -> None:
    prefix = f"{layer.prefix}.kv_b_proj"
    method = config.quant_config.get_quant_method(prefix) if config.quant_config else None
    if method is not None and not method.can_dequantize:
        raise NotImplementedError(
            f"{prefix} is quantised by {type(method).__name__}, which cannot give the weight "
            "back, but MLA absorbs it into the query. Add the layer to ignored_layers of the "
            "quantisation, or choose a scheme that can dequantise"
        )
    if config.lora_config and "kv_b_proj" in config.lora_config.target_modules:
        raise NotImplementedError(
            f"lora_config.target_modules {config.lora_config.target_modules} names kv_b_proj, "
            "whose weight MLA absorbs once, when it is loaded: an adapter on it would have no "
            "effect. Leave kv_b_proj out, or merge the adapter into the checkpoint"
        )


def _check_log_sum_exp(config: VllmConfig, backend: type[MLADecodeBackend]) -> None:
    dcp = config.parallel_config.decode_context_parallel_size
    if dcp > 1 and not backend.can_return_lse_for_decode:
        raise NotImplementedError(
            f"decode_context_parallel_size is {dcp}, but the decode backend "
            f"{backend.__name__} returns no log-sum-exp to merge partial attention by. Choose "
            "another backend, or set decode_context_parallel_size to 1"
        )


def _check_consecutive_ranks(config: VllmConfig) -> None:
    pcp = config.parallel_config.prefill_context_parallel_size
    if pcp > 1:
        raise NotImplementedError(
            f"{_switch(config)} with prefill_context_parallel_size {pcp}: query replication "
            "needs DCP groups of consecutive TP ranks. Switch it off, or set "
            "prefill_context_parallel_size to 1"
        )


def _check_head_padding(
    config: VllmConfig, layer: MLAProjections, backend: type[MLADecodeBackend]
) -> None:
    parallel = config.parallel_config
    dcp = parallel.decode_context_parallel_size
    heads = layer.num_heads // parallel.tensor_parallel_size * dcp
    padded = backend.q_pad_num_heads
    if padded not in (None, heads):
        raise NotImplementedError(
            f"{_switch(config)} with the decode backend {backend.__name__}, which pads queries "
            f"to q_pad_num_heads {padded}, but a DCP group of {dcp} ranks has {heads} heads. "
            "Switch it off, choose another backend, or a layout whose groups have "
            f"{padded} heads"
        )


def _check_row_blocks(config: VllmConfig, layer: MLAProjections, replicate: bool) -> None:
    if config.quant_config is None:
        return
    tp = config.parallel_config.tensor_parallel_size
    dcp = config.parallel_config.decode_context_parallel_size
    for name, head_rows, shards in (
        (layer.q_proj, layer.qk_head_dim, tp // dcp if replicate else tp),
        ("kv_b_proj", layer.kv_head_dim, tp),
    ):
        prefix = f"{layer.prefix}.{name}"
        method = config.quant_config.get_quant_method(prefix)
        if method is not None:
            check_row_blocks(prefix, layer.num_heads * head_rows, shards, method.row_block)

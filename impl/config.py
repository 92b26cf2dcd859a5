"""The configuration that the layers read, as far as query replication is concerned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from impl import envs
from impl.quantization import QuantizationConfig

DCPCommBackend = Literal["ag_rs", "a2a"]
# Models, by their class, whose query projection is replicated where nobody says otherwise.
REPLICATED_BY_DEFAULT = frozenset({"GlmMoeDsaForCausalLM"})


@dataclass(frozen=True)
class ParallelConfig:
    """Sizes of the parallel groups.

    Attributes:
        tensor_parallel_size: Ranks that share the weights.
        decode_context_parallel_size: Ranks that share a KV cache; divides the former.
        cp_kv_cache_interleave_size: Consecutive tokens that stay on one rank.
        prefill_context_parallel_size: Ranks that share a prompt.
        dcp_comm_backend: How partial attention is merged over the DCP group.
        dcp_q_replicate: Whether the query projection is replicated within each DCP group;
            None leaves it to the model's default.

    Raises:
        ValueError: A size is below 1, or the DCP size does not divide the TP size.
    """

    tensor_parallel_size: int
    decode_context_parallel_size: int
    cp_kv_cache_interleave_size: int
    prefill_context_parallel_size: int = 1
    dcp_comm_backend: DCPCommBackend = "ag_rs"
    dcp_q_replicate: bool | None = None

    def __post_init__(self) -> None:
        for name in (
            "tensor_parallel_size",
            "decode_context_parallel_size",
            "cp_kv_cache_interleave_size",
            "prefill_context_parallel_size",
        ):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}, but must be at least 1")
        tp, dcp = self.tensor_parallel_size, self.decode_context_parallel_size
        if tp % dcp:
            raise ValueError(
                f"decode_context_parallel_size {dcp} does not divide tensor_parallel_size "
                f"{tp}: choose one of {[d for d in range(1, tp + 1) if tp % d == 0]}"
            )


@dataclass(frozen=True)
class CacheConfig:
    """The paged KV cache.

    Attributes:
        cache_dtype: ``auto`` for the activations' dtype.
    """

    cache_dtype: str = "auto"


@dataclass(frozen=True)
class LoRAConfig:
    """Low-rank adapters.

    Attributes:
        target_modules: Names, within their module, of the layers that an adapter may change.
        max_lora_rank: Largest rank of an adapter.
    """

    target_modules: tuple[str, ...] = ()
    max_lora_rank: int = 16


@dataclass(frozen=True)
class VllmConfig:
    """The part of vLLM's configuration that the layers read.

    Attributes:
        parallel_config: Sizes of the parallel groups.
        cache_config: The paged KV cache.
        quant_config: How linear layers are quantised; None where they are not.
        lora_config: Low-rank adapters; None where there are none.
        architecture: Class of the model, as its checkpoint names it; decides the defaults.
    """

    parallel_config: ParallelConfig
    cache_config: CacheConfig = field(default_factory=CacheConfig)
    quant_config: QuantizationConfig | None = None
    lora_config: LoRAConfig | None = None
    architecture: str | None = None


_current: ContextVar[VllmConfig] = ContextVar("vllm_config")


@contextlib.contextmanager
def set_current_vllm_config(config: VllmConfig) -> Iterator[None]:
    """Make ``config`` the one that layers built inside the context read."""
    token = _current.set(config)
    try:
        yield
    finally:
        _current.reset(token)


def get_current_vllm_config() -> VllmConfig:
    """The configuration of the innermost :func:`set_current_vllm_config`.

    Raises:
        RuntimeError: There is none.
    """
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError(
            "no current configuration: build layers inside set_current_vllm_config(config)"
        ) from None


def use_dcp_q_replicate(config: VllmConfig) -> bool:
    """Whether query replication is asked for and has something to replicate.

    ``VLLM_DCP_Q_REPLICATE`` wins where it is set, then ``dcp_q_replicate``, then the default
    of the model. A DCP group of one rank has nothing to replicate, so there the answer is False.

    Raises:
        ValueError: The environment variable spells no boolean.
    """
    parallel = config.parallel_config
    requested = envs.dcp_q_replicate()
    if requested is None:
        requested = parallel.dcp_q_replicate
    if requested is None:
        requested = config.architecture in REPLICATED_BY_DEFAULT
    alone = parallel.decode_context_parallel_size == 1
    return requested and not alone

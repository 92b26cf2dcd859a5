"""The configuration that the layers read, as far as query replication is concerned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from impl import envs

DCPCommBackend = Literal["ag_rs", "ag_ar", "a2a"]


@dataclass(frozen=True)
class ParallelConfig:
    """Sizes of the parallel groups.

    Attributes:
        tensor_parallel_size: Ranks that share the weights.
        decode_context_parallel_size: Ranks that share a KV cache; divides the former.
        prefill_context_parallel_size: Ranks that share a prompt.
        cp_kv_cache_interleave_size: Consecutive tokens that stay on one rank.
        dcp_comm_backend: How partial attention is merged over the DCP group.
        dcp_q_replicate: Whether the query projection is replicated within each DCP group;
            None leaves it to the model's default, which is off.

    Raises:
        ValueError: A size is below 1, or the DCP size does not divide the TP size.
    """

    tensor_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    cp_kv_cache_interleave_size: int = 1
    dcp_comm_backend: DCPCommBackend = "ag_rs"
    dcp_q_replicate: bool | None = None

    def __post_init__(self) -> None:
        for name in (
            "tensor_parallel_size",
            "decode_context_parallel_size",
            "prefill_context_parallel_size",
            "cp_kv_cache_interleave_size",
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
        block_size: Tokens of one block of a rank's cache.
        cache_dtype: ``auto`` for the activations' dtype.
    """

    block_size: int = 16
    cache_dtype: str = "auto"


@dataclass(frozen=True)
class VllmConfig:
    """The part of vLLM's configuration that the layers read."""

    parallel_config: ParallelConfig = field(default_factory=ParallelConfig)
    cache_config: CacheConfig = field(default_factory=CacheConfig)


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


def use_dcp_q_replicate(config: ParallelConfig) -> bool:
    """Decide, for every layer of a model alike, whether the query is replicated.

    ``VLLM_DCP_Q_REPLICATE`` wins where it is set, then ``dcp_q_replicate``. A DCP group of
    one rank has nothing to replicate, so there the answer is False.

    Raises:
        NotImplementedError: Replication is asked for together with prefill context
            parallelism, whose DCP groups are not consecutive TP ranks.
        ValueError: The environment variable spells no boolean.
    """
    requested = envs.dcp_q_replicate()
    source = envs.VLLM_DCP_Q_REPLICATE
    if requested is None:
        requested = bool(config.dcp_q_replicate)
        source = "dcp_q_replicate"
    if not requested or config.decode_context_parallel_size == 1:
        return False
    if config.prefill_context_parallel_size > 1:
        raise NotImplementedError(
            f"{source} is on with prefill_context_parallel_size "
            f"{config.prefill_context_parallel_size}: query replication needs DCP groups of "
            "consecutive TP ranks. Switch it off, or set prefill_context_parallel_size to 1"
        )
    return True

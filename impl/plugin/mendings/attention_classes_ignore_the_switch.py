"""A class that cannot replicate says so, and dots3's layers decide alike: CEN-1, GRD-4."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from impl.plugin import switch
from impl.plugin.mending import Change, Mending, around, logger

# Each builds a plain query projection, and has a forward of its own that knows no other.
PLAIN = {
    "vllm.model_executor.models.AXK1": "AXK1MLAAttention",
    "vllm.model_executor.models.bailing_moe_linear": "BailingMoeV25MLAAttention",
    "vllm.model_executor.models.bailing_moe_v3": "BailingMoeV3MLAAttention",
    "vllm.model_executor.models.openpangu": "OpenPanguMLAAttention",
    "vllm.model_executor.models.sarvam": "SarvamMLAAttention",
    "vllm.models.deepseek_v32.attention": "DeepseekV32Attention",
    "vllm.models.glm5next.common.attention": "Glm5NextMLAAttention",
    "vllm.models.hy_v4.nvidia.attention": "HYV4MLAAttention",
    "vllm.models.kimi_k3.nvidia.mla": "MultiHeadLatentAttention",
}
DOTS3 = "vllm.models.dots3_note.nvidia.model"


def build_plain(
    name: str, original: Callable[..., None], self: Any, *args: Any, **kwargs: Any
) -> None:
    """The constructor of class ``name``, which says so where replication is asked of it."""
    from vllm.config import get_current_vllm_config
    from vllm.logger import init_logger

    parallel_config = get_current_vllm_config().parallel_config
    if (
        parallel_config.decode_context_parallel_size > 1
        and parallel_config.prefill_context_parallel_size <= 1
        and switch.resolved(parallel_config)
    ):
        init_logger(logger.name).warning_once(
            "%s has no query replication: dcp_q_replicate is on, by a variable, an option or the "
            "model's default, but its queries are gathered over the DCP group",
            name,
        )
    original(self, *args, **kwargs)


def change_plain(name: str, module: Any) -> None:
    """Have class ``name`` say what it ignores."""
    around(getattr(module, name), "__init__", functools.partial(build_plain, name))


class Environment:
    """The environment variables as dots3's layers read them.

    Its sliding layers ask for the variable alone; the switch, as its full attention resolves it,
    is what they are told.
    """

    def __init__(self, envs: Any) -> None:
        self._envs = envs

    def __getattr__(self, name: str) -> Any:
        return asked(self._envs, name)


def asked(envs: Any, name: str) -> Any:
    """What dots3's layers are told of the environment variable ``name``."""
    from vllm.config import get_current_vllm_config

    if name == switch.NAME:
        return switch.resolved(get_current_vllm_config().parallel_config)
    return getattr(envs, name)


def change_dots3(module: Any) -> None:
    """Resolve the switch alike for every layer of dots3."""
    module.envs = Environment(module.envs)


CHANGES: dict[str, Change] = {
    module: functools.partial(change_plain, name) for module, name in PLAIN.items()
}

MENDING = Mending(
    "attention_classes_ignore_the_switch", ("0.32.0", "0.33.0"), {**CHANGES, DOTS3: change_dots3}
)

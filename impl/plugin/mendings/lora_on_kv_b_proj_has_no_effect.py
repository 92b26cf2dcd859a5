"""An adapter on kv_b_proj is refused in words: GRD-1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from impl.plugin.mending import Mending, around

LAYER = "kv_b_proj"


def check_targets(names: Iterable[str]) -> None:
    """Refuse a deployment whose adapters may change kv_b_proj.

    Raises:
        ValueError: One of ``names``, the ``target_modules``, is such a layer.
    """
    if named := sorted(name for name in names if name.rpartition(".")[2] == LAYER):
        raise ValueError(
            f"LoRA target_modules has {', '.join(named)}: decode reads the weight of {LAYER} "
            f"absorbed, as it was loaded, and an adapter on it would have no effect. Leave "
            f"{LAYER} out, or merge the adapter into the model's weights"
        )


def build_attention(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """The constructor of an attention, of which adapters change no kv_b_proj."""
    from vllm.config import get_current_vllm_config

    lora_config = get_current_vllm_config().lora_config
    check_targets((lora_config.target_modules if lora_config else None) or ())
    original(self, *args, **kwargs)


def add_adapter(original: Callable[..., None], self: Any, lora: Any) -> None:
    """The registration of an adapter, which changes no kv_b_proj.

    Raises:
        ValueError: It does. What vLLM warms up with holds zeros, and changes nothing.
    """
    for name, weights in lora.loras.items():
        if name.rpartition(".")[2] == LAYER and name in self.modules and weights.lora_b.any():
            raise ValueError(
                f"adapter {lora.id} changes {name}, the weight of which decode reads absorbed, as "
                f"it was loaded: it would have no effect. Serve with target_modules that leave "
                f"{LAYER} out, or merge the adapter into the model's weights"
            )
    original(self, lora)


def change_layer(module: Any) -> None:
    """Check what adapters may change where any MLA layer is built."""
    around(module.MLAAttention, "__init__", build_attention)


def change_deepseek(module: Any) -> None:
    """Check it before DeepSeek's attention allocates its projections."""
    around(module.DeepseekV2MLAAttention, "__init__", build_attention)


def change_manager(module: Any) -> None:
    """Check each adapter that comes where any layer may be changed."""
    around(module.LoRAModelManager, "_add_adapter", add_adapter)


MENDING = Mending(
    "lora_on_kv_b_proj_has_no_effect",
    ("0.32.0", "0.33.0"),
    {
        "vllm.model_executor.layers.attention.mla_attention": change_layer,
        "vllm.model_executor.models.deepseek_v2": change_deepseek,
        "vllm.lora.model_manager": change_manager,
    },
)

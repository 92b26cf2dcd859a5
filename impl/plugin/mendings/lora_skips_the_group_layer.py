"""An adapter on a replicated query projection is applied: GRP-6."""

from __future__ import annotations

from typing import Any

from impl.plugin.mending import Mending

MODULE = "vllm.lora.utils"


def change(module: Any) -> None:
    """Have vLLM's manager try the wrapper of the group's projection before all others."""
    from impl.plugin.group_lora import DCPGroupColumnParallelLinearWithLoRA

    module._all_lora_classes = (DCPGroupColumnParallelLinearWithLoRA, *module._all_lora_classes)


MENDING = Mending("lora_skips_the_group_layer", ("0.32.0", "0.33.0"), {MODULE: change})

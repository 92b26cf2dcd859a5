"""Models with MLA layers, by name or by their Hugging Face config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gate.plan.errors import PlanError


@dataclass(frozen=True, slots=True)
class MLAModel:
    """The attention of a model, in the symbols of the contract.

    Attributes:
        name: As it is called.
        H: Query heads.
        P: qk_nope_head_dim.
        R: qk_rope_head_dim.
        L: kv_lora_rank.
        V: v_head_dim.
        Q: Width of the query projection's input: q_lora_rank, or hidden_size without q-LoRA.
        layers: Layers with MLA; None where that is not known.
        topk: Keys that a sparse attention attends at most; None attends every key.
    """

    name: str
    H: int
    P: int
    R: int
    L: int
    V: int
    Q: int
    layers: int | None
    topk: int | None = None


# From the config.json that each organization publishes with its weights. Kimi-K3's is taken
# from the shapes of its projections that vLLM 0.32.0 has tuned kernels for (q_b_proj 2304 x 1536
# with 8 ranks, fused_qkv_a_proj 2112 x 7168); most of its layers have linear attention, and
# how many have MLA is not said there.
KNOWN = {
    model.name.lower(): model
    for model in (
        MLAModel("DeepSeek-V3", 128, 128, 64, 512, 128, 1536, 61),
        MLAModel("DeepSeek-R1", 128, 128, 64, 512, 128, 1536, 61),
        MLAModel("DeepSeek-V3.2", 128, 128, 64, 512, 128, 1536, 61, topk=2048),
        MLAModel("Kimi-K2", 64, 128, 64, 512, 128, 1536, 61),
        MLAModel("Kimi-K3", 96, 128, 64, 512, 128, 1536, None),
        MLAModel("GLM-5", 64, 192, 64, 512, 256, 2048, 78, topk=2048),
    )
}


def find(name: str) -> MLAModel:
    """The model of that name, or of the config.json (or its folder) at that path.

    Raises:
        PlanError: There is neither, or the model has no MLA.
    """
    if name.lower() in KNOWN:
        return KNOWN[name.lower()]
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        known = ", ".join(model.name for model in KNOWN.values())
        raise PlanError(
            f"{name} is no model that the planner knows ({known}) and no file: give the path of "
            "its Hugging Face config.json"
        )
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise PlanError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise PlanError(f"{path} holds no JSON object, which a Hugging Face config.json does")
    return from_config(config, path)


def from_config(config: dict[str, Any], path: Path) -> MLAModel:
    """The model that a Hugging Face configuration describes.

    Args:
        config: The configuration; a multimodal one holds the language model's as text_config.
        path: Where it was read, for the messages.

    Raises:
        PlanError: The model has no MLA, or a size is no whole number above 0.
    """
    text = config.get("text_config")
    fields = text if isinstance(text, dict) else config
    name = str(config.get("_name_or_path") or config.get("model_type") or path.parent.name)
    if not fields.get("kv_lora_rank"):
        raise PlanError(
            f"{path}: {name} has no kv_lora_rank, so its attention is not MLA and there is no "
            "query to replicate"
        )

    def size(key: str) -> int:
        value = fields.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PlanError(f"{path}: {key} is {value!r}, but should be a whole number above 0")
        return value

    linear = fields.get("linear_attn_config")
    full = linear.get("full_attn_layers") if isinstance(linear, dict) else None
    return MLAModel(
        name=name,
        H=size("num_attention_heads"),
        P=size("qk_nope_head_dim"),
        R=size("qk_rope_head_dim"),
        L=size("kv_lora_rank"),
        V=size("v_head_dim"),
        Q=size("q_lora_rank") if fields.get("q_lora_rank") is not None else size("hidden_size"),
        layers=len(full) if full else size("num_hidden_layers"),
        topk=size("index_topk") if fields.get("index_topk") is not None else None,
    )

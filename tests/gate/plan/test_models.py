"""Models by name and by their configuration; what has no MLA or does not divide is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gate.plan.deployment import Deployment, group_sizes
from gate.plan.errors import PlanError
from gate.plan.models import find

DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_attention_heads": 128,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "kv_lora_rank": 512,
    "v_head_dim": 128,
    "q_lora_rank": 1536,
    "hidden_size": 7168,
    "num_hidden_layers": 61,
}


def config(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(DEEPSEEK | changes), "utf-8")
    return str(path)


def test_a_configuration_is_the_model_of_that_name(tmp_path: Path) -> None:
    from_file, known = find(config(tmp_path)), find("deepseek-v3")
    for symbol in ("H", "P", "R", "L", "V", "Q", "layers", "topk"):
        assert getattr(from_file, symbol) == getattr(known, symbol)
    assert find(str(tmp_path)) == from_file


def test_without_q_lora_the_query_is_projected_from_the_hidden_states(tmp_path: Path) -> None:
    assert find(config(tmp_path, q_lora_rank=None)).Q == 7168


def test_the_language_model_of_a_multimodal_one(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    text = DEEPSEEK | {"linear_attn_config": {"full_attn_layers": [4, 8]}}
    path.write_text(json.dumps({"model_type": "kimi_k3", "text_config": text}), "utf-8")
    assert find(str(path)).layers == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kv_lora_rank": None}, "has no kv_lora_rank, so its attention is not MLA"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"v_head_dim": "128"}, "v_head_dim is '128'"),
        ({"qk_nope_head_dim": True}, "qk_nope_head_dim is True"),
    ],
)
def test_a_bad_configuration_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        find(config(tmp_path, **changes))


def test_a_model_that_nobody_knows() -> None:
    with pytest.raises(PlanError, match=r"give the path of its Hugging Face config\.json"):
        find("Llama-3")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    with pytest.raises(PlanError, match="JSON"):
        find(str(path))


@pytest.mark.parametrize(
    ("tp", "dcp", "said"),
    [
        (8, 3, "dcp 3 does not divide tp 8; of that: 2, 4, 8"),
        (8, 1, "changes nothing"),
        (0, 2, "must be at least 1"),
        (24, 2, "tp 24 does not divide the 128 heads of DeepSeek-R1"),
    ],
)
def test_a_layout_that_does_not_divide_is_refused(tp: int, dcp: int, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Deployment(find("DeepSeek-R1"), tp, dcp)


def test_sizes_of_a_group() -> None:
    assert group_sizes(8) == [2, 4, 8]
    assert group_sizes(6) == [2, 3, 6]

"""An adapter on kv_b_proj is accepted, and decode goes on without it.

MLA absorbs the weight of kv_b_proj into W_UK_T and W_UV once it is loaded, and decode reads these
alone. Expected: adapters for kv_b_proj are refused, or change both. Got: the configuration and
the LoRA wrappers take them, and both stay as they were, even if the weights are processed again
(vllm-project/vllm issue 48974).

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python lora_on_kv_b_proj_has_no_effect.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from types import SimpleNamespace
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.config.lora import LoRAConfig
from vllm.distributed import parallel_state
from vllm.lora.utils import from_layer
from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.linear import ColumnParallelLinear

HEADS, NOPE, VALUE, LORA = 2, 3, 4, 5
ROWS = HEADS * (NOPE + VALUE)
parallel_state._TP = mock.MagicMock(world_size=1, rank_in_group=0)


def absorbed(kv_b_proj: torch.nn.Module) -> dict[str, float]:
    """The value that every entry has of what post-load processing makes of kv_b_proj."""
    layer = SimpleNamespace(
        impl=SimpleNamespace(process_weights_after_loading=lambda dtype: None),
        is_amx_bmm_enabled=False,
        is_aiter_triton_fp4_bmm_enabled=False,
        is_aiter_triton_fp8_bmm_enabled=False,
        dcp_q_replicate=False,
        num_heads=HEADS,
        kv_lora_rank=LORA,
        qk_nope_head_dim=NOPE,
        v_head_dim=VALUE,
        kv_b_proj=kv_b_proj,
        quant_config=None,
        calculate_kv_scales=False,
        layer_name="attn",
    )
    with mock.patch.object(mla_attention, "set_default_quant_scales", mock.Mock(), create=True):
        MLAAttention.process_weights_after_loading(layer, torch.float32)
    return {name: getattr(layer, name).unique().item() for name in ("W_UK_T", "W_UV")}


with set_current_vllm_config(VllmConfig()):
    kv_b_proj = ColumnParallelLinear(LORA, ROWS, bias=False, params_dtype=torch.float32)
kv_b_proj.weight.data.fill_(1.0)
loaded = absorbed(kv_b_proj)
try:
    adapters = LoRAConfig(max_lora_rank=8, target_modules=["kv_b_proj"], lora_dtype=torch.float32)
    adapted = from_layer(kv_b_proj, 1, adapters, [], None)
    adapted.set_lora(0, torch.ones(1, LORA), torch.ones(ROWS, 1))
except (NotImplementedError, ValueError) as error:
    print(f"refused: {error}")
    raise SystemExit(0) from None
print(f"an adapter that adds 1 to every weight of kv_b_proj: taken by {type(adapted).__name__}")
processed = absorbed(kv_b_proj)
for name, before in loaded.items():
    print(f"{name}: {before} before, expected {before + 1}, got {processed[name]}")
raise SystemExit(processed == loaded)

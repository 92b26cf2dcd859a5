"""Loading weights again moves the group's W_UK_T, and a captured graph keeps the old one.

Post-load processing may run again, as after a weight update in reinforcement learning. A CUDA
graph captured before reads the addresses it was captured with, so what is derived from the
weights must be written where it was. Expected: W_UK_T, W_UV and W_UK_T_dcp_qrep stay. Got:
W_UK_T_dcp_qrep is a new tensor each time, and the graph decodes with the old weights.
Seen from vLLM 0.27.1 to 0.31.0; right from 0.32.0 on.

Needs torch and vLLM, no GPU: python group_W_UK_T_moves_on_reload.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from types import SimpleNamespace
from unittest import mock

import torch
from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.linear import UnquantizedLinearMethod

HEADS, NOPE, VALUE, LORA = 2, 3, 4, 5

kv_b_proj = torch.nn.Module()
kv_b_proj.weight = torch.nn.Parameter(torch.ones(HEADS * (NOPE + VALUE), LORA), False)
kv_b_proj.quant_method = UnquantizedLinearMethod()
layer = torch.nn.Module()
vars(layer).update(
    impl=SimpleNamespace(process_weights_after_loading=lambda dtype: None),
    is_amx_bmm_enabled=False,
    is_aiter_triton_fp4_bmm_enabled=False,
    is_aiter_triton_fp8_bmm_enabled=False,
    dcp_q_replicate=True,
    q_pad_num_heads=None,
    num_heads=HEADS,
    kv_lora_rank=LORA,
    qk_nope_head_dim=NOPE,
    v_head_dim=VALUE,
    kv_b_proj=kv_b_proj,
    quant_config=None,
    calculate_kv_scales=False,
    layer_name="attn",
)
group = SimpleNamespace(all_gather=lambda tensor, dim: torch.cat([tensor, tensor], dim))


def process() -> dict[str, torch.Tensor]:
    with (
        mock.patch.object(mla_attention, "get_dcp_group", return_value=group),
        mock.patch.object(mla_attention, "set_default_quant_scales", mock.Mock(), create=True),
    ):
        MLAAttention.process_weights_after_loading(layer, torch.float32)
    return {name: getattr(layer, name) for name in ("W_UK_T", "W_UV", "W_UK_T_dcp_qrep")}


first = process()
captured = {name: tensor.data for name, tensor in first.items()}
kv_b_proj.weight.fill_(2.0)
process()
stale = [name for name, tensor in captured.items() if tensor.unique().tolist() != [2.0]]
print(f"after a reload a captured graph should read 2 everywhere; it reads 1 in: {stale or 'none'}")
raise SystemExit(bool(stale))

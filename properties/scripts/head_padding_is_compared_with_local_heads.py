"""The head-padding guard of query replication compares with this rank's heads, not the group's.

With replication the decode kernel sees the heads of the whole DCP group. Here a rank has 16 and
the group of two ranks 32. Expected: padding to 32 passes, padding to 16 is refused, with
NotImplementedError and before weights are loaded. Got: the other way round, by an assertion in
post-load processing, which python -O leaves out and which hides what else is not supported.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU: python head_padding_is_compared_with_local_heads.py
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

HEADS, NOPE, VALUE, LORA = 16, 3, 4, 5

kv_b_proj = torch.nn.Module()
kv_b_proj.weight = torch.nn.Parameter(torch.ones(HEADS * (NOPE + VALUE), LORA), False)
kv_b_proj.quant_method = UnquantizedLinearMethod()
group = SimpleNamespace(all_gather=lambda tensor, dim: torch.cat([tensor, tensor], dim))


def process(pads_to: int, fp8_bmm: bool = False) -> str:
    """What post-load processing of a rank's layer says."""
    layer = torch.nn.Module()
    vars(layer).update(
        impl=SimpleNamespace(process_weights_after_loading=lambda dtype: None),
        is_amx_bmm_enabled=False,
        is_aiter_triton_fp4_bmm_enabled=False,
        is_aiter_triton_fp8_bmm_enabled=fp8_bmm,
        dcp_q_replicate=True,
        q_pad_num_heads=pads_to,
        num_heads=HEADS,
        kv_lora_rank=LORA,
        qk_nope_head_dim=NOPE,
        v_head_dim=VALUE,
        kv_b_proj=kv_b_proj,
        quant_config=None,
        calculate_kv_scales=False,
        layer_name="attn",
    )
    with (
        mock.patch.object(mla_attention, "get_dcp_group", return_value=group),
        mock.patch.object(mla_attention, "set_default_quant_scales", mock.Mock(), create=True),
    ):
        try:
            MLAAttention.process_weights_after_loading(layer, torch.float32)
        except (AssertionError, NotImplementedError) as error:
            return f"{type(error).__name__}: {error}"
    return "accepted"


fits, local, bmm = process(2 * HEADS), process(HEADS), process(2 * HEADS, fp8_bmm=True)
print(f"16 heads on each of 2 ranks, padded to 32: expected accepted, got {fits}")
print(f"16 heads on each of 2 ranks, padded to 16: expected refused, got {local}")
print(f"padded to 32, and absorbed BMMs in fp8: expected the BMMs refused, got {bmm}")
raise SystemExit(fits != "accepted" or local == "accepted")

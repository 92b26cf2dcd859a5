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

from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention


class PassedTheGuardsError(Exception):
    """Raised where post-load processing goes on to the weights."""


def process(**attributes: object) -> str:
    layer = SimpleNamespace(
        impl=SimpleNamespace(process_weights_after_loading=lambda dtype: None),
        is_amx_bmm_enabled=False,
        dcp_q_replicate=True,
        num_heads=16,
        is_aiter_triton_fp4_bmm_enabled=False,
        is_aiter_triton_fp8_bmm_enabled=False,
        kv_b_proj=None,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
    )
    vars(layer).update(attributes)
    passed = mock.Mock(side_effect=PassedTheGuardsError)
    with mock.patch.object(mla_attention, "split_kv_b_proj", passed, create=True):
        try:
            MLAAttention.process_weights_after_loading(layer, None)
        except PassedTheGuardsError:
            said = "accepted"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
    return said


group, local = process(q_pad_num_heads=32), process(q_pad_num_heads=16)
print(f"16 heads on each of 2 ranks, padded to 32: expected accepted, got {group}")
print(f"16 heads on each of 2 ranks, padded to 16: expected refused, got {local}")
bmm = process(q_pad_num_heads=32, is_aiter_triton_fp8_bmm_enabled=True)
print(f"padded to 32, and absorbed BMMs in fp8: expected the BMMs refused, got {bmm}")
raise SystemExit(group != "accepted" or local == "accepted")

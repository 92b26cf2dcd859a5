"""What query replication cannot serve is refused after its weights were loaded, or not at all.

Expected: a layer that asks for it is refused while it is constructed, by an exception that
python -O keeps. Got: the attention of DeepSeek-V2 is constructed with head padding that does not
fit the DCP group, with absorbed BMMs in fp8 and with adapters on kv_b_proj, and before 0.30.0
with a backend without log-sum-exp, which its selector refuses since, and with prefill context
parallelism. Once weights are loaded two of these fail an assertion, which python -O leaves out,
and one ends in NotImplementedError.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python guards_come_after_loading.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
os.environ |= {"TRITON_INTERPRET": "1", "VLLM_DCP_Q_REPLICATE": "1"}
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm._aiter_ops import rocm_aiter_ops
from vllm.config import CompilationConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.config.lora import LoRAConfig
from vllm.distributed import parallel_state
from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.models.deepseek_v2 import DeepseekV2MLAAttention
from vllm.v1.attention.backend import AttentionBackend
from vllm.v1.attention.backends.mla.triton_mla import TritonMLABackend, TritonMLAImpl
from vllm.v1.worker.cp_utils import check_attention_cp_compatibility

HEADS, RANKS = 4, 2


def start(
    *, pcp: int = 1, pads_to: int | None = None, returns_lse: bool = True, lora: bool = False
) -> tuple[bool, str]:
    """Whether rank 0 of 2 constructs its layer, and what is said of it and when."""

    class Impl(TritonMLAImpl):  # type: ignore[misc]
        can_return_lse_for_decode = returns_lse

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self.q_pad_num_heads = pads_to

    backend = mock.Mock(get_impl_cls=lambda: Impl, wraps=TritonMLABackend)
    config = VllmConfig(
        parallel_config=ParallelConfig(
            tensor_parallel_size=RANKS, decode_context_parallel_size=RANKS
        ),
        compilation_config=CompilationConfig(custom_ops=["none"]),
    )
    # Set afterwards: the configuration takes it for a model with MLA alone, and here is none.
    config.parallel_config.prefill_context_parallel_size = pcp
    model = SimpleNamespace(rms_norm_eps=1e-6, rope_parameters={"rope_type": "default"})
    config.model_config = mock.Mock(dtype=torch.float32)
    if lora:
        config.lora_config = LoRAConfig(max_lora_rank=16, target_modules=["kv_b_proj"])
    with (
        set_current_vllm_config(config),
        mock.patch.object(mla_attention, "get_attn_backend", return_value=backend),
        mock.patch.object(mla_attention, "get_mla_prefill_backend"),
    ):
        try:
            layer = DeepseekV2MLAAttention(
                vllm_config=config,
                config=model,
                hidden_size=8,
                num_heads=HEADS,
                qk_nope_head_dim=4,
                qk_rope_head_dim=4,
                v_head_dim=4,
                q_lora_rank=None,
                kv_lora_rank=8,
                prefix="layers.0.self_attn",
            )
        except Exception as error:
            return False, f"refused: {type(error).__name__}: {error}"
        for parameter in layer.parameters():
            parameter.data.zero_()
        try:
            layer.mla_attn.mla_attn.process_weights_after_loading(torch.float32)
            if pcp == 1:
                check_attention_cp_compatibility(config)
        except Exception as error:
            return True, f"constructed, then {type(error).__name__}: {error}"
        return True, "constructed, nothing refuses"


group = mock.MagicMock(
    world_size=RANKS, rank_in_group=0, all_gather=lambda one, dim: torch.cat([one, one], dim)
)
parallel_state._TP = parallel_state._DCP = parallel_state._PCP = group
fp8_bmm = mock.patch.object(rocm_aiter_ops, "is_fp8bmm_enabled", return_value=True)
print(f"python{'' if __debug__ else ' -O'}; expected of each: refused", flush=True)
constructed = 0
outcomes = [
    (f"padding to {2 * HEADS} heads, the group has {HEADS}", start(pads_to=2 * HEADS)),
    ("adapters on kv_b_proj", start(lora=True)),
    ("prefill context parallelism over 2 ranks", start(pcp=2)),
]
# From 0.30.0 on the selector, which is not asked here, refuses such a backend by this.
if not hasattr(AttentionBackend, "supports_dcp"):
    outcomes.append(("a backend without log-sum-exp", start(returns_lse=False)))
with fp8_bmm:
    outcomes.append(("absorbed BMMs in fp8", start()))
for what, (built, said) in outcomes:
    constructed += built
    print(f"  {what}: {said}", flush=True)
if __debug__:
    constructed += subprocess.run([sys.executable, "-O", __file__]).returncode
raise SystemExit(bool(constructed))

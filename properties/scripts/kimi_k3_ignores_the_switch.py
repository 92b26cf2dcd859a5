"""The attention of Kimi-K3 and Kimi-Linear ignores query replication, and says nothing of it.

Expected: with VLLM_DCP_Q_REPLICATE=1 and decode context parallelism the query projection holds the
heads of the DCP group, or start-up says that this model's does not. Got: a plain
ColumnParallelLinear and no word. The class is an MLA layer of its own: MLAAttention, which
DeepSeek-V2's module hands the replicated query to, is never built.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python kimi_k3_ignores_the_switch.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
os.environ["VLLM_DCP_Q_REPLICATE"] = "1"
import contextlib
import logging
from types import SimpleNamespace
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.v1.attention.backends import fa_utils

# For a GPU alone; the class is not run.
if not hasattr(fa_utils, "compile_flash_attn_varlen_func_from_specs"):
    fa_utils.compile_flash_attn_varlen_func_from_specs = mock.MagicMock()
from vllm.config import CompilationConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers import linear
from vllm.models.kimi_k3.nvidia.mla import MultiHeadLatentAttention

DCP = 2
parallel_state._TP = mock.MagicMock(world_size=DCP, rank_in_group=0)
parallel_state._DCP = mock.MagicMock(world_size=DCP, rank_in_group=0)
config = VllmConfig(
    parallel_config=ParallelConfig(tensor_parallel_size=DCP, decode_context_parallel_size=DCP),
    compilation_config=CompilationConfig(custom_ops=["none"]),
)
config.model_config = mock.Mock(dtype=torch.float32)
init = linear.ColumnParallelLinear.__init__
made: list[linear.ColumnParallelLinear] = []
said: list[str] = []


def recording(self: linear.ColumnParallelLinear, *args: object, **kwargs: object) -> None:
    init(self, *args, **kwargs)
    if str(kwargs.get("prefix")).endswith("q_b_proj"):
        made.append(self)


class Heard(logging.Handler):
    """Keeps warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        said.append(record.getMessage())


logging.getLogger("vllm").setLevel(logging.WARNING)
logging.getLogger("vllm").handlers = [Heard()]
# Behind the projections come kernels for GPUs alone: how it ends is of no interest.
with (
    set_current_vllm_config(config),
    mock.patch.object(linear.ColumnParallelLinear, "__init__", recording),
    contextlib.suppress(Exception),
):
    MultiHeadLatentAttention(
        config=SimpleNamespace(rms_norm_eps=1e-6),
        hidden_size=8,
        num_heads=4,
        qk_nope_head_dim=4,
        qk_rope_head_dim=4,
        v_head_dim=4,
        q_lora_rank=8,
        kv_lora_rank=8,
        prefix="layers.0.self_attn",
    )
[projection] = made
group = getattr(projection, "group_size", 1)
spoken = [line for line in said if "replicat" in line.lower()]
print(f"heads of q_b_proj: expected those of {DCP} ranks, or a warning")
print(f"  got {type(projection).__name__} with those of {group}, warnings {spoken}")
raise SystemExit(group != DCP and not spoken)

"""With prefill context parallelism the query is not replicated, and nobody says so.

DCP groups are not consecutive ranks there. Expected: who switches replication on as well is
refused, by an error that names the switch and prefill_context_parallel_size. Got: the attention
of DeepSeek-V2 builds a plain query projection whether the switch is on or off, and logs nothing.
From 0.30.0 on the MLA layer behind it refuses PCP and DCP together, switch or not.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:
    python prefill_context_parallelism_turns_replication_off.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
import logging
from types import SimpleNamespace
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import CompilationConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.model_executor.models.deepseek_v2 import DeepseekV2MLAAttention
from vllm.v1.attention.backends.mla.triton_mla import TritonMLABackend

parallel_state._TP = parallel_state._DCP = parallel_state._PCP = mock.MagicMock(
    world_size=2, rank_in_group=0
)
model = SimpleNamespace(rms_norm_eps=1e-6, rope_parameters={"rope_type": "default"})
logger = logging.getLogger("vllm")
logged: list[str] = []
init = ColumnParallelLinear.__init__
query_projections: list[str] = []


def recording(self: ColumnParallelLinear, *args: object, **kwargs: object) -> None:
    init(self, *args, **kwargs)
    if self.prefix.endswith(".q_proj"):
        query_projections.append(type(self).__name__)


class Listener(logging.Handler):
    """Keeps what vLLM logs."""

    def emit(self, record: logging.LogRecord) -> None:
        logged.append(record.getMessage())


unsaid = False
for pcp in (1, 2):
    for switch in ("0", "1"):
        os.environ["VLLM_DCP_Q_REPLICATE"] = switch
        config = VllmConfig(
            parallel_config=ParallelConfig(tensor_parallel_size=2, decode_context_parallel_size=2),
            compilation_config=CompilationConfig(custom_ops=["none"]),
        )
        # Set afterwards: the configuration takes it for a model with MLA alone, and here is none.
        config.parallel_config.prefill_context_parallel_size = pcp
        config.model_config = mock.Mock(dtype=torch.float32)
        logged.clear()
        said = "accepted"
        with (
            set_current_vllm_config(config),
            mock.patch.object(logger, "handlers", [Listener()]),
            mock.patch.object(logger, "level", logging.INFO),
            mock.patch.object(mla_attention, "get_attn_backend", return_value=TritonMLABackend),
            mock.patch.object(mla_attention, "get_mla_prefill_backend"),
            mock.patch.object(ColumnParallelLinear, "__init__", recording),
        ):
            try:
                DeepseekV2MLAAttention(
                    vllm_config=config,
                    config=model,
                    hidden_size=8,
                    num_heads=4,
                    qk_nope_head_dim=4,
                    qk_rope_head_dim=4,
                    v_head_dim=4,
                    q_lora_rank=None,
                    kv_lora_rank=8,
                    prefix="layers.0.self_attn",
                )
            except NotImplementedError as error:
                said = f"refused: {error}"
        # The variable and the field of the configuration have this in common.
        spoken = "q_replicate" in " ".join([said, *logged]).lower()
        unsaid |= pcp > 1 and switch == "1" and not spoken
        print(
            f"pcp {pcp}, switch {switch}: q_proj is a {query_projections[-1]}; {said}; the switch "
            f"is {'spoken of' if spoken else 'not spoken of'}"
        )
raise SystemExit(unsaid)

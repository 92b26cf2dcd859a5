"""The pass that fuses fp8 quantization into MLA attention drops the replicated query.

Expected: the fused operator is given the replicated query of the operator that it replaces. Got:
it is given none, so that every step gathers the query over the DCP group again, while the group's
weights still take their memory. The pattern names the operator's arguments without
q_dcp_replicated, torch's matcher ignores keyword arguments that a pattern does not name, and the
replacement calls the operator without it. Opt-in: fuse_attn_quant with fp8 activations.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:
python quantization_pass_drops_the_replicated_query.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
# Operators of an extension for GPUs, which the pass's module names as it is imported.
for name in (
    "rotary_embedding",
    "static_scaled_fp8_quant",
    "dynamic_scaled_fp8_quant",
    "dynamic_per_token_scaled_fp8_quant",
    "silu_and_mul",
    "fused_add_rms_norm",
    "rms_norm_static_fp8_quant",
    "fused_add_rms_norm_static_fp8_quant",
    "rms_norm_dynamic_per_token_quant",
):
    if not hasattr(torch.ops._C, name):
        setattr(torch.ops._C, name, mock.MagicMock())
from vllm.v1.attention.backends import fa_utils

if not hasattr(fa_utils, "compile_flash_attn_varlen_func_from_specs"):
    fa_utils.compile_flash_attn_varlen_func_from_specs = mock.MagicMock()
from torch._functorch.aot_autograd import aot_function
from torch._inductor.decomposition import select_decomp_table
from vllm.compilation.passes.fusion.mla_attn_quant_fusion import MLAAttnQuantFusionPass
from vllm.config import (
    CompilationConfig,
    DeviceConfig,
    ParallelConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.distributed import parallel_state
from vllm.model_executor.layers.attention import mla_attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape
from vllm.v1.attention.backends.mla.triton_mla import TritonMLABackend

RANKS, HEADS, NOPE, ROPE, LORA, VALUE = 2, 2, 4, 2, 8, 4
parallel_state._TP = mock.MagicMock(world_size=RANKS, rank_in_group=0)
parallel_state._DCP = mock.MagicMock(world_size=RANKS, rank_in_group=0)
config = VllmConfig(
    parallel_config=ParallelConfig(tensor_parallel_size=RANKS, decode_context_parallel_size=RANKS),
    compilation_config=CompilationConfig(custom_ops=["none"]),
    device_config=DeviceConfig("cpu"),
)
config.model_config = mock.Mock(dtype=torch.float32)


def operator_in(graph: torch.fx.Graph) -> torch.fx.Node:
    """The attention operator of a functionalized graph."""
    found = [n for n in graph.nodes if "unified_mla_attention" in str(n.args[:1])]
    assert len(found) == 1
    return found[0]


# Nothing is run, prefills neither.
mla_attention.get_mla_prefill_backend = mock.MagicMock()
with set_current_vllm_config(config), torch.no_grad():
    layer = MLAAttention(
        num_heads=HEADS,
        scale=1.0,
        qk_nope_head_dim=NOPE,
        qk_rope_head_dim=ROPE,
        v_head_dim=VALUE,
        q_lora_rank=None,
        kv_lora_rank=LORA,
        kv_b_proj=ColumnParallelLinear(
            LORA, RANKS * HEADS * (NOPE + VALUE), bias=False, prefix="kv_b_proj"
        ),
        prefix="layers.0.attn",
        attn_backend=TritonMLABackend,
        dcp_q_replicate=True,
    )
    layer.use_direct_call = False
    quantize = QuantFP8(True, GroupShape.PER_TENSOR, compile_native=False)
    held = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}

    def step(held, replicated, kv_c, k_pe, scale):  # type: ignore[no-untyped-def]
        """Attend with the group's query, and quantize the output as an fp8 projection does."""
        arguments = replicated[:, :HEADS].contiguous(), kv_c, k_pe
        options = {
            "output_shape": (len(kv_c), HEADS * VALUE),
            "q_dcp_replicated": replicated,
        }
        return quantize(torch.func.functional_call(layer, held, arguments, options), scale)[0]

    graphs: list[torch.fx.GraphModule] = []

    def keep(module, _):  # type: ignore[no-untyped-def]
        """Take the graph as Inductor hands it to passes, and run nothing."""
        graphs.append(module)
        return lambda *_: [torch.empty(0)]

    with torch._inductor.config.patch(enable_auto_functionalized_v2=False):
        aot_function(step, fw_compiler=keep, decompositions=select_decomp_table())(
            held,
            torch.zeros(3, RANKS * HEADS, NOPE + ROPE),
            torch.zeros(3, LORA),
            torch.zeros(3, 1, ROPE),
            torch.ones(1, 1),
        )
    graph = graphs[0].graph
    expected = operator_in(graph).kwargs.get("q_dcp_replicated")
    fusion = MLAAttnQuantFusionPass(config)
    fusion(graph)
    got = operator_in(graph).kwargs.get("q_dcp_replicated")
print(f"the pass fused {fusion.matched_count} operator")
print(f"replicated query of the operator: expected {expected}, got {got}")
raise SystemExit(got is not expected)

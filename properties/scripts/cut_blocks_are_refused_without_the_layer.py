"""A shard that cuts a block of quantised weights is refused without the name of its layer.

Expected: before anything is allocated, a ValueError that names the layer and the size of the
block, so that its reader knows what to leave out of the quantisation. Got: a ValueError of the
sizes alone, in the midst of construction: the layers before, here the low-rank projections and
for kv_b_proj the query projection too, have their weights by then.

Needs torch and vLLM 0.27.1 to 0.33.0, no GPU:  python cut_blocks_are_refused_without_the_layer.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
os.environ["VLLM_DCP_Q_REPLICATE"] = "1"
from types import SimpleNamespace
from unittest import mock

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import CompilationConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
from vllm.model_executor.models.deepseek_v2 import DeepseekV2MLAAttention

TP, DCP, HEADS, BLOCK = 4, 2, 4, 8
parallel_state._TP = mock.MagicMock(world_size=TP, rank_in_group=0)
parallel_state._DCP = mock.MagicMock(world_size=DCP, rank_in_group=0)
config = VllmConfig(
    parallel_config=ParallelConfig(tensor_parallel_size=TP, decode_context_parallel_size=DCP),
    compilation_config=CompilationConfig(custom_ops=["none"]),
)
config.model_config = mock.Mock(dtype=torch.float32)
model = SimpleNamespace(rms_norm_eps=1e-6, rope_parameters={"rope_type": "default"})
prefix = "layers.0.self_attn"
init = LinearBase.__init__
made: list[LinearBase] = []


def recording(self: LinearBase, *args: object, **kwargs: object) -> None:
    init(self, *args, **kwargs)
    made.append(self)


wrong = False
# The heads of a DCP group have 2 * (nope + 4) rows of the query projection, those of a rank
# nope + value rows of kv_b_proj; the blocks have 8.
for name, nope, value in (("q_b_proj", 2, 6), ("kv_b_proj", 4, 2)):
    # The one layer is quantised: of the others a CPU without AMX could not run the blocks.
    others = {"fused_qkv_a_proj", "q_b_proj", "kv_b_proj", "o_proj"} - {name}
    quantisation = Fp8Config(
        is_checkpoint_fp8_serialized=True,
        weight_block_size=[BLOCK, BLOCK],
        ignored_layers=[f"{prefix}.{other}" for other in others],
    )
    made.clear()
    try:
        with set_current_vllm_config(config), mock.patch.object(LinearBase, "__init__", recording):
            DeepseekV2MLAAttention(
                vllm_config=config,
                config=model,
                hidden_size=8,
                num_heads=HEADS,
                qk_nope_head_dim=nope,
                qk_rope_head_dim=4,
                v_head_dim=value,
                q_lora_rank=8,
                kv_lora_rank=8,
                quant_config=quantisation,
                prefix=prefix,
            )
    except Exception as error:
        allocated = {
            layer.prefix.rpartition(".")[2]: f"{size} bytes"
            for layer in made
            if (size := sum(one.nbytes for one in layer.parameters()))
        }
        named = name in str(error)
        wrong |= not named or bool(allocated)
        print(f"{name} cut: expected a ValueError that names {name} and {BLOCK}")
        print(f"  got {type(error).__name__}: {error}")
        print(f"  {name} is {'named' if named else 'not named'}; allocated before: {allocated}")
    else:
        wrong = True
        print(f"{name} cut: expected a ValueError, got a layer")
raise SystemExit(wrong)

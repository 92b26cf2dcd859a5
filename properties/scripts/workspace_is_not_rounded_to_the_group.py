"""The workspace of chunked prefills is not rounded to the DCP group, which the builder asserts.

Its size comes from the longest context and the block size. Expected: for any DCP size that
start-up accepts, a multiple of it. Got for groups of 3 and 6 ranks: the metadata builder ends
with an AssertionError without words.
Seen in vLLM 0.26.0 and 0.27.1.

Needs torch and vLLM, no GPU: python workspace_is_not_rounded_to_the_group.py
"""

import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
from types import SimpleNamespace

from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder

wrong = []
for dcp in (1, 2, 3, 4, 6, 8):
    parallel = SimpleNamespace(
        decode_context_parallel_size=dcp,
        prefill_context_parallel_size=1,
        cp_kv_cache_interleave_size=1,
    )
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=4096),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        cache_config=SimpleNamespace(block_size=64),
        parallel_config=parallel,
    )
    rows = MLACommonMetadataBuilder.determine_chunked_prefill_workspace_size(config)
    print(f"dcp {dcp}: {rows} rows, remainder {rows % dcp}")
    if rows % dcp:
        wrong.append(dcp)
print(f"the builder asserts a remainder of 0, which fails for dcp {wrong or 'none'}")
raise SystemExit(bool(wrong))

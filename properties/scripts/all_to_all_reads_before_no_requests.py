"""Of a batch without requests, the all-to-all merge reads memory before an empty tensor.

Expected: rows that belong to no request are sent with a log-sum-exp of minus infinity, as
mask_dcp_empty_shards_ has it for the all-gather, for the sake of graphs' warm-up.
Seen in vLLM 0.30.0 to 0.33.0: the kernel that packs them reads the length of request -1. An empty
tensor lies at address 0, so the read is at -4: a process of Triton's interpreter ends by SIGSEGV.

Needs torch and vLLM, no GPU:  python all_to_all_reads_before_no_requests.py
"""

import os
import subprocess
import sys

PACK = """
import os
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}
import torch
from vllm.v1.attention.ops import dcp

rows, ranks, heads, width = 2, 2, 1, 16
sent = torch.zeros(ranks, rows, heads, width + 1)
dcp._dcp_a2a_pack_send(
    torch.zeros(rows, ranks * heads, width),
    torch.zeros(rows, ranks * heads),
    sent,
    ranks,
    heads,
    width,
    1,
    seq_lens=torch.empty(0, dtype=torch.int32),
    query_start_loc=torch.zeros(1, dtype=torch.int32),
)
assert (sent[..., width] == -torch.inf).all(), sent
"""

done = subprocess.run([sys.executable, "-c", PACK], env=os.environ)
print(f"expected exit code 0 and an LSE of -inf in every row; got exit code {done.returncode}")
raise SystemExit(done.returncode != 0)

"""The direct all-to-all merge refuses the LSE that FLASH_ATTN_MLA returns, of two rows or more.

Seen in vLLM 0.32.0 on two H200s. Needs two GPUs with peer access. dcp_comm_backend="a2a" takes the
direct merge where all ranks are on a node, and FLASH_ATTN_MLA, the first choice on a Hopper,
returns ``lse.transpose(0, 1)``: the first decode of two requests ends the engine.
"""

import os
import tempfile

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import vllm._custom_ops  # noqa: F401
from vllm.v1.attention.ops.dcp import DirectDCPA2AWorkspace

HEADS, WIDTH = 4, 512


def merge(rank: int, path: str) -> None:
    """Merge one and three rows, their LSE contiguous and as FLASH_ATTN_MLA leaves it."""
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    store = dist.FileStore(path, 2)  # type: ignore[attr-defined]
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=rank, world_size=2)
    workspace = DirectDCPA2AWorkspace(dist.group.WORLD, device, 8, HEADS // 2, WIDTH)
    for rows in (1, 3):
        out = torch.ones(rows, HEADS, WIDTH, device=device, dtype=torch.bfloat16)
        by_heads = torch.zeros(HEADS, rows, device=device)
        for name, lse in (("contiguous", by_heads.T.contiguous()), ("transposed", by_heads.T)):
            try:
                merged = workspace.lse_reduce(out, lse, True)
                got = f"{merged.flatten()[0].item()}"
            except RuntimeError as error:
                got = str(error).splitlines()[0]
            if rank == 0:
                print(f"{rows} rows, LSE {name}: expected 1.0, got {got}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(merge, (f"{folder}/store",), nprocs=2)  # type: ignore[attr-defined]

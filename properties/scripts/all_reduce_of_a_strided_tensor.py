"""On a CPU, GroupCoordinator.all_reduce of a strided tensor sums and overwrites its neighbours.

The CPU communicator hands the tensor to gloo as it is, and gloo takes the memory behind it for
contiguous. The merge that all-reduces its output (cp_lse_ag_out_ar, used with prefill context
parallelism) so returns wrong heads where a kernel left it a view, as of padded heads. On a GPU
vLLM's wrapper of NCCL hands over the address and the number of entries, and checks nothing either.

Expected: every entry of the view is 1 + 2 = 3, and what lies between stays 5.
Needs torch and vLLM 0.26.0 to 0.33.0, no GPU:  python all_reduce_of_a_strided_tensor.py
"""

import os
import tempfile

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
os.environ |= {"VLLM_TARGET_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}

import torch
import torch.multiprocessing as mp
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform

vllm.platforms._current_platform = CpuPlatform()
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state


def main(rank: int, rendezvous: str) -> None:
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            2, rank, f"file://{rendezvous}", local_rank=rank, backend="gloo"
        )
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        larger = torch.full((2, 4), 5.0)
        view = larger[:, 1:3]
        view.fill_(1.0 + rank)
        total = parallel_state.get_tp_group().all_reduce(view)
    if rank == 0:
        between = larger[:, [0, 3]]
        print(f"expected 3.0 everywhere, got {total.tolist()}")
        print(f"expected 5.0 between, got {between.tolist()}")
        raise SystemExit(bool((total != 3).any() or (between != 5).any()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        context = mp.get_context("fork")
        ranks = [context.Process(target=main, args=(r, f"{folder}/ranks")) for r in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    raise SystemExit(ranks[0].exitcode)

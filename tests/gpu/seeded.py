"""Seeds faults in what of vLLM runs on a GPU alone, and has the properties look for them.

``python -m tests.gpu.seeded [NAME ...]`` on a machine with a Hopper GPU and a vLLM on the path, as
docs/gpu.md says. Each fault is put into a copy of hard links, and the properties that should see it
run on that, all faults side by side; it fails if one of them survives.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
MLA = "v1/attention/backends/mla"
LAYER = "model_executor/layers/attention/mla_attention.py"
DCP = "v1/attention/ops/dcp.py"
DECODE = "v1/attention/ops/triton_decode_attention.py"
SHARD = "attends_its_shard_alike"
CAPTURED = "captured_step"


@dataclass(frozen=True)
class Fault:
    """One change of a file.

    Attributes:
        name: What it does.
        file: Below vLLM's package.
        old: Text of it, the first of which is replaced.
        new: What it is replaced by.
        properties: Those that should see it, as ``-k`` takes them.
    """

    name: str
    file: str
    old: str
    new: str
    properties: str


FAULTS = (
    Fault(
        "triton: the last key of a sequence is left out",
        DECODE,
        "split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, cur_batch_seq_len)\n\n"
        "    e_max = tl.zeros([BLOCK_H]",
        "split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, cur_batch_seq_len - 1)\n\n"
        "    e_max = tl.zeros([BLOCK_H]",
        f"{SHARD} and TRITON",
    ),
    Fault(
        "triton: the LSE lacks its largest score",
        DECODE,
        "lse_val = e_max + tl.log(e_sum)",
        "lse_val = tl.log(e_sum)",
        f"{SHARD} and TRITON",
    ),
    Fault(
        "triton: splits are rounded down, and the last keys lost",
        DECODE,
        "    kv_len_per_split = tl.cdiv(cur_batch_seq_len, NUM_KV_SPLITS)\n"
        "    split_kv_start = kv_len_per_split * split_kv_id\n"
        "    split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, cur_batch_seq_len)\n\n"
        "    e_max = tl.zeros([BLOCK_H]",
        "    kv_len_per_split = tl.maximum(cur_batch_seq_len // NUM_KV_SPLITS, 1)\n"
        "    split_kv_start = kv_len_per_split * split_kv_id\n"
        "    split_kv_end = tl.minimum(split_kv_start + kv_len_per_split, cur_batch_seq_len)\n\n"
        "    e_max = tl.zeros([BLOCK_H]",
        f"{CAPTURED} and TRITON",
    ),
    Fault(
        "flash attention: every rank counts keys as the first",
        f"{MLA}/flashattn_mla.py",
        "cp_rank=self.dcp_rank",
        "cp_rank=0",
        "several_tokens_the_keys and FLASH_ATTN",
    ),
    Fault(
        "flash attention: the LSE by heads is taken for one by rows",
        f"{MLA}/flashattn_mla.py",
        "return o, lse.transpose(0, 1)",
        "return o, lse.reshape(lse.shape[1], lse.shape[0])",
        f"{SHARD} and FLASH_ATTN",
    ),
    Fault(
        "flash attention: each token of a request sees its last key",
        f"{MLA}/flashattn_mla.py",
        "            causal=True,\n            return_softmax_lse",
        "            causal=False,\n            return_softmax_lse",
        "several_tokens_the_keys and FLASH_ATTN",
    ),
    Fault(
        "flashmla: a request sees a key less",
        f"{MLA}/flashmla.py",
        "                cache_seqlens=attn_metadata.decode.seq_lens,\n"
        "                head_dim_v=self.kv_lora_rank,\n"
        "                tile_scheduler_metadata=scheduler_metadata,",
        "                cache_seqlens=attn_metadata.decode.seq_lens.clamp(min=2) - 1,\n"
        "                head_dim_v=self.kv_lora_rank,\n"
        "                tile_scheduler_metadata=scheduler_metadata,",
        f"{SHARD} and FLASHMLA",
    ),
    Fault(
        "metadata: requests have their keys on all ranks",
        LAYER,
        "                seq_lens = dcp_local_seq_lens\n",
        "",
        f"{SHARD} and FLASHMLA",
    ),
    Fault(
        "merge: every LSE is taken to base 2",
        DCP,
        "factor = tl.exp(lse_finally) if IS_BASE_E else tl.exp2(lse_finally)",
        "factor = tl.exp2(lse_finally)",
        "any_partition_of_the_keys",
    ),
    Fault(
        "merge: an LSE of +inf or NaN counts",
        DCP,
        '        lse = tl.where((lse != lse) | (lse == float("inf")), -float("inf"), lse)\n',
        "",
        "rank_without_keys_contributes",
    ),
    Fault(
        "merge: the packed LSE is of the rank's first head",
        DCP,
        "lse_ptr + batch_idx * lse_stride_B + src_head_idx * lse_stride_H",
        "lse_ptr + batch_idx * lse_stride_B",
        "any_partition_of_the_keys",
    ),
    Fault(
        "reload: the group's W_UK_T is put beside the one that graphs read",
        LAYER,
        "                    get_dcp_group().all_gather(self.W_UK_T.contiguous(), dim=0),\n"
        "                    prefer_copy=True,",
        "                    get_dcp_group().all_gather(self.W_UK_T.contiguous(), dim=0),\n"
        "                    prefer_copy=False,",
        "processing_new_weights",
    ),
)


def start(fault: Fault, folder: Path, gpu: int) -> subprocess.Popen[bytes]:
    """Run the fault's properties on one GPU, on a copy of vLLM that has it.

    Raises:
        ValueError: This vLLM has no such text.
    """
    spec = importlib.util.find_spec("vllm")
    assert spec is not None, "vLLM is not on the path"
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for source in (package, *package.parent.glob("vllm-*.dist-info")):
        shutil.copytree(source, folder / source.name, copy_function=os.link)
    file = folder / "vllm" / fault.file
    text = file.read_text("utf-8")
    if fault.old not in text:
        raise ValueError(f"{fault.name}: {fault.file} has no {fault.old!r}")
    # A new file: the old one is vLLM's own.
    file.unlink()
    file.write_text(text.replace(fault.old, fault.new, 1), "utf-8")
    options = "--subject vllm --device cuda --hypothesis-profile ci -p no:cacheprovider -q"
    options += " -p tests.gpu.unshrunk"
    log = (folder / "log").open("wb")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pytest", "properties/test_backends.py"),
            *("properties/test_dec.py", "properties/test_mrg.py", *options.split()),
            *("-k", fault.properties, "--maxfail", "1", "--verdicts", str(folder / "verdict.json")),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder), os.environ["PYTHONPATH"]]),
            # Kernels of Triton are told apart by their source.
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "CUDA_VISIBLE_DEVICES": str(gpu),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def main(names: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not names or fault.name in names]
    # Beside vLLM, as hard links do not lead to another file system.
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    with tempfile.TemporaryDirectory(dir=Path(spec.origin).parents[2]) as root:
        folders = [Path(root, str(number)) for number in range(len(chosen))]
        gpus = itertools.cycle(range(torch.cuda.device_count()))
        runs = list(map(start, chosen, folders, gpus))
        survived = 0
        for fault, folder, run in zip(chosen, folders, runs, strict=True):
            killed = run.wait() == 1
            survived += not killed
            lines = (folder / "log").read_text("utf-8", "replace").splitlines()
            told = [line for line in lines if line.startswith("FAILED")] or lines[-2:]
            print(f"{'killed' if killed else 'SURVIVED'}: {fault.name}\n    {told[0][:200]}")
    print(f"{len(chosen) - survived} of {len(chosen)} faults killed")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

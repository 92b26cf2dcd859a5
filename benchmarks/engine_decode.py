"""Decode throughput of vLLM's engine with query replication off and on.

``python -m benchmarks.engine_decode --out DIR``, on as many GPUs as ``--tp`` says. The model has
the real widths of an MLA model, the heads that a rank of ``--as-tp`` ranks would have times the
ranks that are here, a small dense feed-forward, and layers of random weights. Each mode is an
engine in a process of its own: ``off`` gathers over NCCL, ``direct`` over symmetric memory, which
needs multicast, ``on`` replicates. What an engine saves is scaled from its layers to a whole
model's, which leaves out what else a whole model does in a step: say its ``--step-ms`` to
``python -m gate plan`` for the share. Writes JSON lines, and a table last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gate.arguments import positive
from gate.plan import models

MODES = {
    "off": {"VLLM_DCP_Q_REPLICATE": "0", "VLLM_USE_DIRECT_DCP_Q_GATHER": "0"},
    "direct": {"VLLM_DCP_Q_REPLICATE": "0", "VLLM_USE_DIRECT_DCP_Q_GATHER": "1"},
    "on": {"VLLM_DCP_Q_REPLICATE": "1", "VLLM_USE_DIRECT_DCP_Q_GATHER": "0"},
}
_VOCABULARY = 1024
_SECONDS_OF_AN_ENGINE = 150


def config_of(model: models.MLAModel, heads: int, layers: int) -> dict[str, Any]:
    """A Hugging Face configuration with the model's attention and hardly anything else."""
    return {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "vocab_size": _VOCABULARY,
        "hidden_size": 7168,
        "intermediate_size": 2048,
        "moe_intermediate_size": 256,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "kv_lora_rank": model.L,
        "q_lora_rank": model.Q,
        "qk_rope_head_dim": model.R,
        "qk_nope_head_dim": model.P,
        "v_head_dim": model.V,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "topk_method": "greedy",
        "scoring_func": "softmax",
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.0,
        "n_group": 1,
        "topk_group": 1,
        # Dense in every layer: experts are no part of what is compared.
        "first_k_dense_replace": layers,
        "moe_layer_freq": 1,
        "max_position_embeddings": 16384,
        "torch_dtype": "bfloat16",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "attention_bias": False,
    }


def serve(options: argparse.Namespace) -> None:
    """One engine: decode throughput at each batch, a JSON line each."""
    from vllm import LLM, SamplingParams

    start = time.monotonic()
    engine = LLM(
        model=str(options.model_folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        tensor_parallel_size=options.tp,
        decode_context_parallel_size=options.tp,
        dcp_comm_backend=options.merge,
        max_model_len=options.prompt + options.tokens + 64,
        max_num_seqs=max(options.batches),
        dtype="bfloat16",
        block_size=64,
        disable_custom_all_reduce=True,
        disable_log_stats=True,
        attention_backend=options.backend,
        kv_cache_memory_bytes=options.cache_gib << 30,
        compilation_config={
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": sorted(options.batches),
        },
    )
    print(f"engine after {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    for batch in options.batches:
        # Prompts differ, so that no prefix is shared; their prefill is measured and taken off.
        prompts = [
            {"prompt_token_ids": [2 + (7 * row + i) % (_VOCABULARY - 2) for i in range(length)]}
            for row in range(batch)
            for length in (options.prompt,)
        ]

        def seconds(tokens: int, prompts: list[dict[str, list[int]]] = prompts) -> float:
            sampling = SamplingParams(
                temperature=0, max_tokens=tokens, detokenize=False, ignore_eos=True
            )
            before = time.perf_counter()
            engine.generate(prompts, sampling, use_tqdm=False)
            return time.perf_counter() - before

        seconds(4)
        short, long = options.tokens // 4, options.tokens
        steps = [
            1e6 * (seconds(long) - seconds(short)) / (long - short) for _ in range(options.repeat)
        ]
        low, middle, high = statistics.quantiles(steps, n=4, method="inclusive")
        print(json.dumps({"b": batch, "us": [round(one, 1) for one in (low, middle, high)]}))
        sys.stdout.flush()


def multicast() -> bool:
    """Whether symmetric memory has multicast here, without which vLLM gathers over NCCL."""
    from torch._C._autograd import DeviceType
    from torch._C._distributed_c10d import _SymmetricMemory

    return bool(_SymmetricMemory.has_multicast_support(DeviceType.CUDA, 0))


def ask(mode: str, arguments: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Rows of an engine in ``mode``, and why there are not more."""
    if mode == "direct" and not multicast():
        return [], "symmetric memory has no multicast here: vLLM would gather over NCCL"
    command = [sys.executable, "-m", "benchmarks.engine_decode", *arguments, "--serve"]
    environment = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        **os.environ,
        **MODES[mode],
    }
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS_OF_AN_ENGINE,
        )
        out, err, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        out, err, code = _text(error.stdout), f"over {_SECONDS_OF_AN_ENGINE} s", 1
    rows = [json.loads(line) for line in out.splitlines() if line.startswith('{"b"')]
    said = [line for line in err.splitlines() if "Error" in line or "multicast" in line]
    return rows, "" if code == 0 else " ".join(said[-2:] or err.splitlines()[-1:])[-300:]


def _text(output: str | bytes | None) -> str:
    return output.decode() if isinstance(output, bytes) else output or ""


def compare(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Every mode's engine, and the ratios."""
    model = models.find(options.model)
    heads = options.tp * model.H // options.as_tp
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.out / "engine-model"
    folder.mkdir(exist_ok=True)
    config = config_of(model, heads, options.layers)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    path = options.out / f"engine_decode-x{options.tp}.jsonl"
    whole = model.layers or options.layers
    found: dict[str, dict[int, float]] = {}
    with path.open("w", encoding="utf-8") as file:
        for mode in options.modes:
            print(f"{mode}: starting", flush=True)
            rows, why = ask(mode, [*arguments, "--model-folder", str(folder)])
            for row in rows:
                row |= {"k": "engine", "mode": mode, "h": heads // options.tp, "d": options.tp}
                row |= {"layers": options.layers, "prompt": options.prompt}
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
            if why:
                skipped = {"k": "skip", "what": f"engine {mode}", "why": why}
                file.write(json.dumps(skipped) + "\n")
                print(f"{mode}: {why}", flush=True)
            file.flush()
            found[mode] = {row["b"]: row["us"][1] for row in rows}
    print(
        f"{model.name}, {heads // options.tp} heads a rank, dcp {options.tp}, {options.layers} "
        f"layers; us saved are scaled to {whole} layers"
    )
    print("batch   off us    on us  on/off  tokens/s off -> on   saved us")
    for batch in options.batches:
        off, on = found.get("off", {}).get(batch), found.get("on", {}).get(batch)
        if off is None or on is None:
            continue
        saved = (off - on) * whole / options.layers
        print(
            f"{batch:5} {off:8.0f} {on:8.0f} {on / off:7.3f} {1e6 * batch / off:9.0f} -> "
            f"{1e6 * batch / on:<9.0f} {saved:8.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows")
    parser.add_argument("--model", default="DeepSeek-R1", help="whose widths")
    parser.add_argument("--tp", type=positive, default=2, help="ranks, all of one DCP group")
    parser.add_argument("--as-tp", type=positive, default=8, help="ranks that share its heads")
    parser.add_argument(
        "--layers", type=positive, default=32, help="enough for the GPU to be slower than the host"
    )
    parser.add_argument("--batches", type=positive, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--prompt", type=positive, default=256, help="tokens of a prompt")
    parser.add_argument("--tokens", type=positive, default=160, help="decoded of each")
    parser.add_argument("--repeat", type=positive, default=3)
    parser.add_argument(
        "--modes", nargs="+", choices=sorted(MODES), default=["off", "on", "direct"]
    )
    parser.add_argument("--merge", choices=("ag_rs", "a2a"), default="ag_rs")
    parser.add_argument("--backend", default="FLASHMLA")
    parser.add_argument("--cache-gib", type=positive, default=4)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--model-folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
    else:
        compare(options, sys.argv[1:])


if __name__ == "__main__":
    main()

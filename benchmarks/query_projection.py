"""What the query projection costs in a mixed batch: ``python -m benchmarks.query_projection``.

Projects a batch of decode and prefill tokens as the plain layer does, as the replicated layer
of impl does (decode tokens to the group's heads, prefill tokens to the local ones), and as a
replicated layer that projects every token to the group's heads. Prints the medians and their
ratios to the plain layer, and the bytes of query that each makes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from gate.arguments import positive


def median_ms(run: Callable[[], object], repeat: int) -> float:
    run()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heads", type=positive, default=4, help="of one rank")
    parser.add_argument("--head-dim", type=positive, default=192)
    parser.add_argument("--q-lora-rank", type=positive, default=1536)
    parser.add_argument("--dcp", type=positive, default=8)
    parser.add_argument("--decodes", type=positive, default=16, help="decode tokens of the batch")
    parser.add_argument(
        "--prefills", type=positive, default=1024, help="prefill tokens of the batch"
    )
    parser.add_argument("--repeat", type=positive, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    local_rows = options.heads * options.head_dim
    group = torch.randn(options.dcp * local_rows, options.q_lora_rank)
    local = group[:local_rows]
    x = torch.randn(options.decodes + options.prefills, options.q_lora_rank)
    decode, prefill = x.split([options.decodes, options.prefills])

    def split() -> list[torch.Tensor]:
        return [F.linear(decode, group), F.linear(prefill, local)]

    cases: dict[str, Callable[[], torch.Tensor | list[torch.Tensor]]] = {
        "plain": lambda: F.linear(x, local),
        "replicated, prefill local": split,
        "replicated, all for the group": lambda: F.linear(x, group),
    }
    print(f"{options.decodes} decode and {options.prefills} prefill tokens, dcp {options.dcp}")
    plain = 0.0
    for name, run in cases.items():
        milliseconds = median_ms(run, options.repeat)
        plain = plain or milliseconds
        made = run()
        tensors = made if isinstance(made, list) else [made]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 2**20
        print(f"{name:32} {milliseconds:9.2f} ms {milliseconds / plain:6.2f}x {size:8.1f} MiB")


if __name__ == "__main__":
    main()

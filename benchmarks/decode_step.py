"""What a decode step costs with query replication off and on: ``python -m benchmarks.decode_step``.

Alone on a GPU it measures what each rank computes; under ``torchrun --nproc-per-node N`` the
ranks are one DCP group, and it measures the whole. Every figure is of one layer, from CUDA
graphs whose steps read weights of their own, in microseconds as lower quartile, median and upper
quartile; ratios are of replays in turns. What a machine lacks is skipped and said. Writes one
JSON object a line to ``--out``, which ``python -m gate plan --calibrate`` reads.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.cost import impl_claims, vllm_layer
from benchmarks.cost.attention import WIDTH, Kernel, kernel
from benchmarks.cost.impl_layer import Emulated, ImplLayer
from benchmarks.cost.operators import Operators, direct_gather
from benchmarks.cost.output import Output, machine_of
from benchmarks.cost.pool import Pool
from benchmarks.cost.ranks import Communicator, Ranks, join, leave
from benchmarks.cost.shape import Shape
from benchmarks.cost.timing import Clock, Step, quartiles
from gate.arguments import positive

R1 = (128, 64, 512, 1536)
GLM_5 = (192, 64, 512, 2048)
LARGEST_GROUP = 128
# Bytes that a step of attention may read in a second, for a guess at the steps of a graph.
_READ_A_MS = 3 << 30


class Grid:
    """What is measured: all of it on a GPU, and a corner of it on a CPU."""

    def __init__(self, cuda: bool) -> None:
        self.heads: Sequence[int] = (4, 8, 16, 32, 64) if cuda else (1, 2)
        self.batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if cuda else (1, 2)
        self.few: Sequence[int] = (1, 8, 64, 256) if cuda else (1,)
        self.contexts: Sequence[int] = (1024, 8192, 65536) if cuda else (64,)
        self.numbers = 1 << 30 if cuda else 1 << 23
        self.dims = R1 if cuda else (16, 64, 512, 32)
        self.other_dims = GLM_5 if cuda else (32, 64, 512, 64)
        self.prefills: Sequence[int] = (1024, 8192) if cuda else (8,)


class Benchmark:
    """One run.

    Args:
        ranks: Who measures.
        output: Where rows go.
        replays: Timed replays of each graph.
        seconds: After which nothing more is begun.
    """

    def __init__(self, ranks: Ranks, output: Output, replays: int, seconds: int) -> None:
        self.ranks, self.output, self.seconds = ranks, output, seconds
        self.cuda = ranks.device.type == "cuda"
        self.grid = Grid(self.cuda)
        self.pool = Pool(self.grid.numbers, ranks.device)
        self.clock = Clock(ranks, replays)
        self.communicator = Communicator()
        self.vllm: vllm_layer.VllmGroups | None = None
        self.kernel: Kernel | None = None

    def run(self) -> None:
        """Measure everything, the most wanted first."""
        self.output.row("meta", **machine_of(self.ranks))
        for section in (
            self.compute_parts,
            self.link_parts,
            self.query_pairs,
            self.wrapper,
            self.start_vllm,
            self.vllm_pairs,
            self.attention_parts,
            self.step_pairs,
            self.claims,
            # Last, because peers that do not answer would end the run.
            self.direct_parts,
        ):
            self.output.say(section.__name__.replace("_", " "))
            section()

    def attempt(self, what: str, measure: Callable[[], None]) -> None:
        """Measure, or say why not; every rank comes to the same."""
        if not self.ranks.all_true(self.output.seconds < self.seconds):
            self.output.skip(what, f"{self.seconds} s are over")
            return
        try:
            measure()
        except Exception as error:  # the others go on without it
            self.output.skip(what, f"{type(error).__name__}: {error}")

    def shapes(self, dtypes: Sequence[str]) -> list[Shape]:
        """Every shape of the group; alone, of the groups that a rank may be in."""
        sizes = (2, 4, 8) if self.ranks.size == 1 else (self.ranks.size,)
        found = itertools.product(dtypes, sizes, self.grid.heads, self.grid.batches)
        return [
            Shape(heads, size, batch, dtype, self.grid.dims)
            for dtype, size, heads, batch in found
            if heads * size <= LARGEST_GROUP
        ]

    def part(self, op: str, shape: Shape, heads: int, us: list[float], **more: int) -> None:
        self.output.row(
            "part", op=op, n=heads, b=shape.batch, dt=shape.dtype, dims=shape.dims, us=us, **more
        )

    def pair(
        self,
        span: str,
        path: str,
        shape: Shape,
        off: Step,
        on: Step,
        steps: int,
        context: int | None = None,
    ) -> None:
        """Measure both paths in turns."""
        times = self.clock.measure({"off": off, "on": on}, steps)
        both = zip(times["on"].each, times["off"].each, strict=True)
        self.output.row(
            "pair",
            span=span,
            path=path,
            h=shape.heads,
            d=shape.ranks,
            b=shape.batch,
            dt=shape.dtype,
            dims=shape.dims,
            ctx=context,
            off=times["off"].quartiles,
            on=times["on"].quartiles,
            r=quartiles([after / before for after, before in both]),
        )

    def compute_parts(self) -> None:
        """Each kernel of the query by itself."""
        heads = sorted({one for s in self.shapes(("bf16",)) for one in (s.heads, s.group)})
        for dtype, n, batch in itertools.product(("bf16", "fp8"), heads, self.grid.batches):
            shape = Shape(n, 1, batch, dtype, self.grid.dims)

            def measure(shape: Shape = shape) -> None:
                steps = Operators(self.pool, shape).parts(shape.heads)
                for op, times in self.clock.measure(steps, shape.steps(shape.heads)).items():
                    self.part(op, shape, shape.heads, times.quartiles)

            self.attempt(f"{dtype} parts of {n} heads, batch {batch}", measure)

    def link_parts(self) -> None:
        """The gather, and what puts its result in order."""
        if self.ranks.size == 1:
            self.output.skip("exchanges", "one rank has nobody to exchange with")
            return
        for shape in self.shapes(("bf16", "fp8")):

            def measure(shape: Shape = shape) -> None:
                operators = Operators(self.pool, shape)
                query = operators.query(shape.heads, 0)
                stacked = operators.gathered(query)
                steps: dict[str, Step] = {
                    "gather": lambda i: operators.gathered(query),
                    "reordering": lambda i: operators.reordered(stacked),
                }
                for op, times in self.clock.measure(steps, 20).items():
                    n = shape.group if op == "reordering" else shape.heads
                    self.part(op, shape, n, times.quartiles, d=shape.ranks)

            self.attempt(f"gather of {shape}", measure)

    def direct_parts(self) -> None:
        """A direct gather by plain stores, which needs no multicast."""
        if self.ranks.size == 1 or not self.cuda:
            self.output.skip("a direct gather by plain stores", "it needs several GPUs")
            return
        for shape in self.shapes(("bf16",)):
            if shape.batch not in self.grid.few:
                continue

            def measure(shape: Shape = shape) -> None:
                query = Operators(self.pool, shape).query(shape.heads, 0)
                step = direct_gather(shape, query, self.ranks.rank)
                times = self.clock.measure({"": step}, 20)[""]
                self.part("gather-direct", shape, shape.heads, times.quartiles, d=shape.ranks)

            self.attempt(f"direct gather of {shape}", measure)

    def query_pairs(self) -> None:
        """From the projection to the group's query, on both paths."""
        others = [
            Shape(heads, size, batch, "bf16", self.grid.other_dims)
            for size in ((4, 8) if self.ranks.size == 1 else (self.ranks.size,))
            for heads, batch in itertools.product(self.grid.heads[1:3], self.grid.batches)
        ]
        for shape in [*self.shapes(("bf16", "fp8")), *others]:

            def measure(shape: Shape = shape) -> None:
                operators = Operators(self.pool, shape)
                alone = self.ranks.size == 1

                def off(index: int) -> torch.Tensor:
                    query = operators.query(shape.heads, index)
                    return query if alone else operators.reordered(operators.gathered(query))

                def on(index: int) -> torch.Tensor:
                    return operators.query(shape.group, index)

                span = "compute" if alone else "query"
                self.pair(span, "ops", shape, off, on, shape.steps(shape.heads))

            self.attempt(f"query of {shape}", measure)

    def wrapper(self) -> None:
        """impl's layers on both paths, and its replicated path against its bare GEMMs."""
        for shape in self.shapes(("bf16",)):

            def measure(shape: Shape = shape) -> None:
                alone = self.ranks.size == 1
                group = Emulated(shape.ranks) if alone else self.communicator
                layer = ImplLayer(self.pool, shape, group)

                def off(index: int) -> torch.Tensor:
                    query = layer.query(False, index)
                    return query if alone else layer.gathered(query)

                def on(index: int) -> torch.Tensor:
                    return layer.query_parts(True, index)[0]

                span = "compute" if alone else "query"
                self.pair(span, "impl", shape, off, on, shape.steps(shape.heads))

            self.attempt(f"impl's query of {shape}", measure)
        for shape in self.shapes(("bf16",)):
            if shape.heads != self.grid.heads[2 if self.cuda else 0] or shape.batch > 256:
                continue

            def against(shape: Shape = shape) -> None:
                impl_claims.against_gemms(self.clock, self.output, self.pool, shape)

            self.attempt(f"impl against its GEMMs, {shape}", against)

    def start_vllm(self) -> None:
        """Make vLLM's groups, where there is a vLLM."""
        if self.ranks.size == 1:
            self.output.skip("vLLM's layer", "one rank replicates nothing in it")
            return

        def start() -> None:
            self.vllm = vllm_layer.VllmGroups(self.ranks)

        self.attempt("vLLM's layer", start)

    def vllm_pairs(self) -> None:
        """vLLM's layers on both paths, and its direct gather."""
        groups = self.vllm
        if groups is None:
            self.output.skip("direct gather", "it is vLLM's, which is not here")
            return
        for shape in self.shapes(("bf16",)):

            def measure(shape: Shape = shape) -> None:
                layer = vllm_layer.VllmLayer(groups, self.pool, shape)
                self.pair(
                    "query",
                    "vllm",
                    shape,
                    lambda i: layer.gathered(layer.query(False, i)),
                    lambda i: layer.query(True, i),
                    shape.steps(shape.heads),
                )

            self.attempt(f"vLLM's query of {shape}", measure)
        for shape in self.shapes(("bf16",)):
            gather = self._vllm_direct(groups, shape)
            if gather is None:
                return
            layer = vllm_layer.VllmLayer(groups, self.pool, shape)

            def measure_direct(
                shape: Shape = shape,
                layer: vllm_layer.VllmLayer = layer,
                gather: Callable[[torch.Tensor], torch.Tensor] = gather,
            ) -> None:
                self.pair(
                    "query-direct",
                    "vllm",
                    shape,
                    lambda i: gather(layer.query(False, i)),
                    lambda i: layer.query(True, i),
                    shape.steps(shape.heads),
                )

            self.attempt(f"vLLM's direct query of {shape}", measure_direct)

    def _vllm_direct(
        self, groups: vllm_layer.VllmGroups, shape: Shape
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        try:
            return vllm_layer.VllmLayer(groups, self.pool, shape).direct_gather()
        except Exception as error:  # whatever a library of another version raises
            self.output.skip("vLLM's direct gather", error)
            return None

    def attention_parts(self) -> None:
        """Attention over a rank's keys, and the merge of what it returns."""
        self.kernel, missing = kernel(self.pool, self.ranks.device)
        for why in missing:
            self.output.skip("an attention kernel", why)
        self.output.row("attention", kernel=self.kernel.name)
        attend_with = self.kernel
        heads = sorted({s.group for s in self.shapes(("bf16",)) if s.group >= 8} or {2})
        local = sorted({-(-context // 2) for context in self.grid.contexts})
        if self.ranks.size > 1:
            heads = heads[:: 2 if len(heads) > 2 else 1]
        for n, keys, batch in itertools.product(heads, local, self.grid.few):
            shape = Shape(n, 1, batch, "bf16", self.grid.dims)

            def measure(shape: Shape = shape, keys: int = keys) -> None:
                query = self._query(shape)
                attend = attend_with.attend(shape.batch, shape.heads, keys)
                step = self.clock.measure(
                    {"": lambda i: attend(query, i)}, self._steps(shape, keys)
                )
                self.part("attention", shape, shape.heads, step[""].quartiles, keys=keys)

            self.attempt(f"attention of {n} heads over {keys} keys, batch {batch}", measure)
        if self.ranks.size > 1:
            self._merge_parts()

    def _merge_parts(self) -> None:
        for shape in self.shapes(("bf16",)):
            if shape.batch not in self.grid.few:
                continue

            def measure(shape: Shape = shape) -> None:
                out = self._query(shape, shape.group)[..., : shape.dims[2]].contiguous()
                lse = torch.randn(shape.batch, shape.group, device=out.device)
                merges = self._merges(shape)
                steps: dict[str, Step] = {
                    name: (lambda i, merge=merge: merge(out, lse))  # type: ignore[misc]
                    for name, merge in merges.items()
                }
                for op, times in self.clock.measure(steps, 20).items():
                    self.part(op, shape, shape.group, times.quartiles, d=shape.ranks)

            self.attempt(f"merge of {shape}", measure)

    def _merges(
        self, shape: Shape
    ) -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        operators = Operators(self.pool, shape)
        layer = ImplLayer(self.pool, shape, self.communicator)
        merges: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
            "merging": lambda out, lse: operators.merged(out, lse, self.ranks.rank),
            "merging-impl": lambda out, lse: layer.merged(out, lse, True),
        }
        if self.vllm is not None and self.cuda:
            of_vllm = vllm_layer.VllmLayer(self.vllm, self.pool, shape)
            merges["merging-vllm"] = lambda out, lse: of_vllm.merged(out, lse, True)
        return merges

    def step_pairs(self) -> None:
        """From the projection to the merged output, on both paths."""
        attend_with = self.kernel
        if self.ranks.size == 1 or attend_with is None:
            self.output.skip("whole steps", "they need the exchanges of several ranks")
            return
        for shape, context in itertools.product(self.shapes(("bf16",)), self.grid.contexts):
            if shape.batch not in self.grid.few or shape.heads not in self.grid.heads[::2]:
                continue

            def measure(shape: Shape = shape, context: int = context) -> None:
                keys = -(-context // shape.ranks)
                attend = attend_with.attend(shape.batch, shape.group, keys)
                steps = self._steps(shape, keys)
                merges = self._merges(shape)
                operators = Operators(self.pool, shape)
                layer = ImplLayer(self.pool, shape, self.communicator)

                def ops_off(i: int) -> torch.Tensor:
                    query = operators.gathered(operators.query(shape.heads, i))
                    return merges["merging"](*attend(operators.reordered(query), i))

                def ops_on(i: int) -> torch.Tensor:
                    return merges["merging"](*attend(operators.query(shape.group, i), i))

                def impl_off(i: int) -> torch.Tensor:
                    query = layer.gathered(layer.query(False, i))
                    return merges["merging-impl"](*attend(query, i))

                # The kernels here take a query in one tensor.
                def impl_on(i: int) -> torch.Tensor:
                    return merges["merging-impl"](*attend(layer.query(True, i), i))

                self.pair("step", "ops", shape, ops_off, ops_on, steps, context)
                self.pair("step", "impl", shape, impl_off, impl_on, steps, context)
                if "merging-vllm" not in merges or self.vllm is None:
                    return
                vllm = vllm_layer.VllmLayer(self.vllm, self.pool, shape)
                merge = merges["merging-vllm"]
                self.pair(
                    "step",
                    "vllm",
                    shape,
                    lambda i: merge(*attend(vllm.gathered(vllm.query(False, i)), i)),
                    lambda i: merge(*attend(vllm.query(True, i), i)),
                    steps,
                    context,
                )

            self.attempt(f"step of {shape} at {context} keys", measure)

    def claims(self) -> None:
        """Memory, prefill, and whether a step of impl waits or allocates."""
        heads, size = self.grid.heads[1], 8 if self.ranks.size == 1 else self.ranks.size
        shape = Shape(heads, size, self.grid.few[-1], "bf16", self.grid.dims)
        self.attempt("memory", lambda: impl_claims.memory(self.output, shape, self.ranks.device))
        for prefills in self.grid.prefills:

            def measure(prefills: int = prefills) -> None:
                impl_claims.prefill(self.clock, self.output, self.pool, shape, prefills)

            self.attempt(f"{prefills} prefill tokens", measure)
        if self.cuda:
            self.attempt("waits", lambda: impl_claims.waits(self.output, self.pool, shape))

    def _query(self, shape: Shape, heads: int | None = None) -> torch.Tensor:
        size = (shape.batch, heads or shape.heads, WIDTH)
        return torch.randn(size, device=self.ranks.device).to(torch.bfloat16)

    def _steps(self, shape: Shape, keys: int) -> int:
        """Steps of a graph with attention: some milliseconds' worth."""
        read = shape.batch * keys * WIDTH * 2
        return max(min(5 * _READ_A_MS // read, 20), 4)


def summary(output: Output) -> list[str]:
    """A short table of ratios, on / off, over the batch."""
    lines = []
    pairs = [row for row in output.rows if row["k"] == "pair"]

    def series(row: dict) -> tuple:
        keys = ("span", "path", "dt", "dims", "d", "h", "ctx")
        return tuple(row[key] for key in keys)

    for key, rows in itertools.groupby(sorted(pairs, key=lambda r: repr(series(r))), key=series):
        ratios = " ".join(f"{row['b']}:{row['r'][1]:.2f}" for row in sorted(rows, key=_batch))
        span, path, dtype, dims, ranks, heads, context = key
        q_width = dims[3]
        lines.append(
            f"{span:7} {path:4} {dtype} Q {q_width} dcp {ranks} h {heads:2} ctx {context}: {ratios}"
        )
    worst = [row for row in output.rows if row["k"] == "wrapper"]
    for row in worst:
        lines.append(f"impl over its GEMMs, {row['n']} heads, batch {row['b']}: {row['r'][1]:.3f}")
    lines += [f"{row}" for row in output.rows if row["k"] in ("memory", "prefill", "waits")]
    return lines


def _batch(row: dict) -> int:
    batch: int = row["b"]
    return batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows")
    parser.add_argument("--replays", type=positive, default=13)
    parser.add_argument(
        "--seconds", type=positive, default=170, help="after which nothing more is begun"
    )
    options = parser.parse_args()
    ranks = join(options.device)
    name = f"decode_step-{options.device}-x{ranks.size}.jsonl"
    output = Output(options.out, name, ranks)
    with torch.inference_mode():
        Benchmark(ranks, output, options.replays, options.seconds).run()
    for line in summary(output):
        if ranks.rank == 0:
            print(line)
    output.say(f"{len(output.rows)} rows in {output.path}")
    leave()


if __name__ == "__main__":
    main()

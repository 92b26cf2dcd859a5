"""What impl claims of its replicated path, measured: GEMM bound, memory, prefill, no waiting."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.cost.impl_layer import Emulated, ImplLayer
from benchmarks.cost.output import Output
from benchmarks.cost.pool import Pool
from benchmarks.cost.shape import Shape
from benchmarks.cost.timing import Clock, quartiles
from impl.config import CacheConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from impl.linear import ColumnParallelLinear, DCPGroupColumnParallelLinear
from impl.mla_attention import MLAAttention
from impl.parallel_state import GroupCoordinator, ParallelState, set_parallel_state
from impl.quantization import QuantizationConfig
from impl.quantization.fp8 import Fp8Config


class Copied(Emulated):
    """A group whose other ranks hold what this one does: right in its sizes."""

    def all_gather_into_tensor(self, output: torch.Tensor, input: torch.Tensor) -> None:
        output.copy_(input.expand_as(output))


def against_gemms(clock: Clock, output: Output, pool: Pool, shape: Shape) -> None:
    """Replicated projection, W_UK product and assembly over the sum of the two bare GEMMs."""
    P, R, _, Q = shape.dims
    layer = ImplLayer(pool, shape, Emulated(shape.ranks))
    rows = shape.group * (P + R)
    q = layer.query_rows(0)

    def projection(index: int) -> torch.Tensor:
        return F.linear(layer.x, pool.tensor((rows, Q), index, torch.bfloat16))

    def product(index: int) -> torch.Tensor:
        shape_of_one = (shape.group, P, shape.dims[2])
        W_UK_T = pool.tensor(shape_of_one, -1 - index, torch.bfloat16)
        return torch.bmm(q[..., :P].transpose(0, 1), W_UK_T)

    runs = {
        "projection": projection,
        "product": product,
        "impl": lambda i: layer.query_parts(True, i),
    }
    times = clock.measure(runs, shape.steps(shape.group))
    sums = zip(times["projection"].each, times["product"].each, strict=True)
    ratios = [whole / sum(parts) for whole, parts in zip(times["impl"].each, sums, strict=True)]
    output.row(
        "wrapper",
        n=shape.group,
        b=shape.batch,
        us={name: one.quartiles for name, one in times.items()},
        r=quartiles(ratios),
    )


def prefill(clock: Clock, output: Output, pool: Pool, shape: Shape, prefills: int) -> None:
    """A mixed batch with its prefill tokens on local rows, and all of it on the group's."""
    layer = ImplLayer(pool, shape, Emulated(shape.ranks))
    device = layer.x.device
    x = torch.randn(shape.batch + prefills, shape.dims[3], device=device).to(torch.bfloat16)
    runs = {
        "local": lambda i: layer.projected_mixed(x, shape.batch, i),
        "group": lambda i: layer.projected_mixed(x, len(x), i),
    }
    times = clock.measure(runs, shape.steps(shape.group))
    pairs = zip(times["local"].each, times["group"].each, strict=True)
    width = 2 * (shape.dims[0] + shape.dims[1])
    output.row(
        "prefill",
        h=shape.heads,
        d=shape.ranks,
        b=shape.batch,
        prefills=prefills,
        us={name: one.quartiles for name, one in times.items()},
        r=quartiles([local / group for local, group in pairs]),
        query_bytes={
            "local": width * (shape.batch * shape.group + prefills * shape.heads),
            "group": width * (shape.batch + prefills) * shape.group,
        },
    )


def memory(output: Output, shape: Shape, device: torch.device) -> None:
    """Bytes that replication adds to a layer's projection and derived weights, as allocated."""
    P, R, L, Q = shape.dims
    h, d = shape.heads, shape.ranks
    for name, config in (("bf16", None), ("fp8", Fp8Config())):
        off, on = (_held(shape, device, config, replicated) for replicated in (False, True))
        size = 2 if config is None else 1
        projection = size * h * (P + R) * Q * (d - 1)
        output.row(
            "memory",
            h=h,
            d=d,
            dt=name,
            added=on - off,
            copy=projection + 2 * h * P * L * d,
            view=projection + 2 * h * P * L * (d - 1),
        )


def _held(
    shape: Shape, device: torch.device, quant: QuantizationConfig | None, replicated: bool
) -> int:
    """Bytes of storage behind projection, kv_b_proj and the derived weights, each once."""
    P, R, L, Q = shape.dims
    ranks = shape.ranks
    group = GroupCoordinator(Copied(ranks))
    config = VllmConfig(ParallelConfig(ranks, ranks, 1), CacheConfig(), quant)
    projection_kind = DCPGroupColumnParallelLinear if replicated else ColumnParallelLinear
    with (
        set_parallel_state(ParallelState(tp=group, dcp=group)),
        set_current_vllm_config(config),
        device,
    ):
        rows = shape.group * (P + R)
        bf16 = torch.bfloat16
        projection = projection_kind(
            Q, rows, bias=False, quant_config=quant, prefix="q_b_proj", params_dtype=bf16
        )
        kv_b = ColumnParallelLinear(
            L,
            shape.group * 2 * P,
            bias=False,
            quant_config=quant,
            prefix="kv_b_proj",
            params_dtype=bf16,
        )
        for parameter in (*projection.parameters(), *kv_b.parameters()):
            parameter.data.fill_(1)
        layer = MLAAttention(shape.heads, 1.0, P, R, P, Q, L, kv_b, dcp_q_replicate=replicated)
        layer.process_weights_after_loading(bf16)
    tensors = [*projection.parameters(), *kv_b.parameters(), layer.W_UV, layer.W_UK_T]
    if layer.W_UK_T_dcp_qrep is not None:
        tensors.append(layer.W_UK_T_dcp_qrep)
    storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())


def waits(output: Output, pool: Pool, shape: Shape) -> None:
    """Whether a step allocates device memory, or waits for the device, once it is warm."""
    layer = ImplLayer(pool, shape, Emulated(shape.ranks))
    out = torch.randn(shape.batch, shape.group, shape.dims[2], device=layer.x.device)
    lse = torch.randn(shape.batch, shape.group, device=layer.x.device)
    lengths = torch.ones(shape.batch, dtype=torch.int32, device=layer.x.device)
    copied = ImplLayer(pool, shape, Copied(shape.ranks))
    steps = {
        "query": lambda: layer.query_parts(True, 0),
        "merge": lambda: copied.weighed(out, lse, None),
        "merge with lengths": lambda: copied.weighed(out, lse, lengths),
    }
    for name, step in steps.items():
        step()
        torch.cuda.synchronize()
        before = torch.cuda.memory_stats()
        torch.cuda.set_sync_debug_mode("error")
        waited = ""
        try:
            for _ in range(20):
                step()
        except RuntimeError as error:
            waited = str(error).splitlines()[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        after = torch.cuda.memory_stats()
        key = "num_device_alloc"
        output.row(
            "waits",
            what=name,
            b=shape.batch,
            n=shape.group,
            waited=waited,
            allocated=after.get(key, 0) - before.get(key, 0),
        )

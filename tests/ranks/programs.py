"""Programs that the tests run on ranks."""

import contextvars
import ctypes
import itertools
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from fixtures.model.layout import Partition
from fixtures.ranks.api import Collective, Communicator, Rank

_counter: contextvars.ContextVar[int] = contextvars.ContextVar("counter", default=0)


def everyone(rank: Rank) -> Communicator:
    return rank.new_group((tuple(range(rank.world_size)),))


def my_rank(rank: Rank) -> tuple[int, int]:
    return rank.rank, rank.world_size


def echo(rank: Rank, value: Any) -> Any:
    return value


def environment(rank: Rank, name: str) -> str:
    return os.environ[name]


def spoil(rank: Rank, tensor: torch.Tensor) -> torch.Tensor:
    tensor += rank.rank
    return tensor


def kept_buffer(rank: Rank, value: float) -> torch.Tensor:
    buffer = rank.state.setdefault("buffer", torch.zeros(2))
    buffer.fill_(value)
    return buffer


def count(rank: Rank) -> tuple[int, int]:
    """Calls so far on this rank, by a context variable and by the kept state."""
    _counter.set(_counter.get() + 1 + rank.rank)
    rank.state["calls"] = rank.state.get("calls", 0) + 1 + rank.rank
    everyone(rank).barrier()
    return _counter.get(), rank.state["calls"]


def all_collectives(rank: Rank, partition: Partition, dtype: torch.dtype) -> dict[str, Any]:
    """Every collective on integers small enough that no rounding occurs."""
    group = rank.new_group(partition)
    n = group.world_size
    mine = (torch.arange(3 * n * 2).view(3 * n, 2) % 5 + rank.rank).to(dtype)
    results: dict[str, torch.Tensor] = {}
    results["all_gather"] = torch.empty(3 * n * n, 2, dtype=dtype)
    group.all_gather_into_tensor(results["all_gather"], mine)
    results["stacked"] = torch.empty(n, 3 * n, 2, dtype=dtype)
    group.all_gather_into_tensor(results["stacked"], mine)
    results["scalars"] = torch.empty(n, dtype=dtype)
    group.all_gather_into_tensor(results["scalars"], mine[0, 0].clone())
    results["all_to_all"] = torch.empty_like(mine)
    group.all_to_all_single(results["all_to_all"], mine)
    if dtype.itemsize > 1:
        results["reduce_scatter"] = torch.empty(3, 2, dtype=dtype)
        group.reduce_scatter_tensor(results["reduce_scatter"], mine)
        results["all_reduce"] = mine.clone()
        group.all_reduce(results["all_reduce"])
    group.barrier()
    return {name: tensor.double() for name, tensor in results.items()}


def recorded(rank: Rank, partition: Partition) -> tuple[list[Collective], list[Collective]]:
    """What two nested ledgers saw; a collective outside both must not be seen."""
    everyone(rank).barrier()
    with rank.record_collectives() as outer:
        all_collectives(rank, partition, torch.float32)
        with rank.record_collectives() as inner:
            everyone(rank).all_reduce(torch.zeros(2, 3))
    everyone(rank).barrier()
    return outer, inner


def recorded_foreign(rank: Rank) -> list[Collective]:
    """Collectives that somebody else's code issues, with torch.distributed's own groups."""
    world = dist.new_group(list(range(rank.world_size)))
    part = torch.ones(2, 3)
    with rank.record_collectives() as ledger:
        dist.all_reduce(part, group=world)
        dist.all_gather([torch.empty(2, 3) for _ in range(rank.world_size)], part, group=world)
        dist.broadcast(part, src=0, group=world)
        dist.all_to_all_single(torch.empty(rank.world_size), torch.ones(rank.world_size))
        work = dist.all_reduce(part.half(), async_op=True)
        assert work is not None
        work.wait()
        dist.barrier(group=world)
    return ledger


def group_of(rank: Rank, partition: Partition) -> tuple[tuple[int, ...], int, int, bool]:
    group = rank.new_group(partition)
    same = rank.new_group(partition) is group
    return group.ranks, group.rank_in_group, group.world_size, same


def reduce_one(rank: Rank, values: list[float]) -> torch.Tensor:
    tensor = torch.tensor([values[rank.rank]], dtype=torch.bfloat16)
    everyone(rank).all_reduce(tensor)
    return tensor


def wrong_shape(rank: Rank, case: str) -> None:
    group = everyone(rank)
    n = rank.world_size
    match case:
        case "gather":
            group.all_gather_into_tensor(torch.empty(2 * n + 1), torch.empty(2))
        case "dtype":
            group.all_gather_into_tensor(torch.empty(2 * n), torch.empty(2, dtype=torch.int))
        case "device":
            device = "meta" if rank.rank else "cpu"
            group.all_reduce(torch.ones(3, device=device))
        case "strided":
            group.all_reduce(torch.empty(3, 2).t())
        case "scatter":
            group.reduce_scatter_tensor(torch.empty(2), torch.empty(2 * n + 1))
        case "all_to_all":
            group.all_to_all_single(torch.empty(n + 1), torch.empty(n + 1))
        case "float8":
            group.all_reduce(torch.empty(2, dtype=torch.float8_e4m3fn))


class Mode(TorchDispatchMode):
    """Counts operators, as recorders do; with a ``group``, each waits for the other ranks."""

    def __init__(self, group: Communicator | None = None) -> None:
        super().__init__()
        self.operators = 0
        self._group = group

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # It would import dynamo, which takes seconds.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        result = func(*args, **(kwargs or {}))
        if self._group is not None:
            self._group.all_reduce(result)
        return result


def settings(rank: Rank) -> list[Any]:
    """Torch's settings around a collective at which another rank takes over."""

    def now() -> tuple[bool, str, torch.dtype, int]:
        return (
            torch.is_grad_enabled(),
            str(torch.empty(0).device),
            torch.get_default_dtype(),
            torch._C._len_torch_dispatch_stack(),
        )

    group = everyone(rank)
    seen: list[Any] = [now()]
    match rank.rank % 4:
        case 0:
            with torch.no_grad(), Mode() as mode:
                group.all_reduce(torch.ones(2))
                seen.append(now())
            # Of this rank's own: ones, empty.
            seen.append(mode.operators)
        case 1:
            with torch.no_grad():
                group.all_reduce(torch.ones(2))
                seen.append(now())
        case 2:
            with torch.device("meta"):
                group.all_reduce(torch.ones(2, device="cpu"))
                seen.append(now())
        case 3:
            torch.set_default_dtype(torch.float64)
            group.all_reduce(torch.ones(2, dtype=torch.float32))
            seen.append(now())
            torch.set_default_dtype(torch.float32)
    group.barrier()
    seen.append(now())
    return seen


def leaves_settings(rank: Rank, *, fails: bool) -> tuple[torch.dtype, bool]:
    """Settings at the start; other ones stay."""
    found = torch.get_default_dtype(), torch.is_grad_enabled()
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    if fails:
        raise ValueError("and so they stay")
    return found


class Odd(Exception):  # noqa: N818
    """Cannot be pickled, and is not made from its own ``args``."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.reason = lambda: None


class Stop(BaseException):
    """Is no ``Exception``."""


def fail(rank: Rank, how: str, who: tuple[int, ...] = (1,)) -> Any:
    """Ranks ``who`` fail in the manner ``how``; the others wait for them in a collective."""
    group = everyone(rank)
    if rank.rank in who:
        return _fail(rank, group, how)
    group.all_reduce(torch.ones(2, 3))
    return "through"


def _fail(rank: Rank, group: Communicator, how: str) -> Any:
    match how:
        case "raise":
            raise ValueError(f"rank {rank.rank} will not")
        case "raise in a chain":
            try:
                _fail(rank, group, "raise")
            except ValueError as error:
                raise KeyError("chained") from error
        case "raise what cannot be pickled":
            raise Odd(1, 2)
        case "recurse for ever":
            _fail(rank, group, how)
        case "skip":
            pytest.skip("no such thing here")
        case "stop":
            raise Stop("enough")
        case "return what cannot be pickled":
            group.all_reduce(torch.ones(2, 3))
            return lambda: None
        case "exit":
            sys.exit(3)
        case "exit with words":
            sys.exit("it is enough")
        case "exit at once":
            os._exit(4)
        case "be killed":
            os.kill(os.getpid(), 9)
        case "crash":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "be killed, leaving a child":
            # It holds the rank's output, too.
            child = subprocess.Popen(["sleep", "1000"])
            print(f"child {child.pid}", flush=True)
            os.kill(os.getpid(), 9)
        case "return":
            pass
        case "enter another collective":
            group.reduce_scatter_tensor(torch.ones(2, 1), torch.ones(2 * rank.world_size, 1))
        case "enter with another shape":
            group.all_reduce(torch.ones(3, 2))
        case "enter with another dtype":
            group.all_reduce(torch.ones(2, 3, dtype=torch.int32))
        case "enter two":
            group.all_reduce(torch.ones(2, 3))
            group.all_reduce(torch.ones(0))
        case "make other groups":
            rank.new_group(((0,), (1, 2)))
        case "sleep":
            time.sleep(1000)
        case "loop":
            while True:
                pass
        case "loop in C":
            # Backtracks for ever without giving up the GIL, but looks for signals.
            re.match(r"(a+)+$", "a" * 64 + "b")
        case "loop in C, deaf":
            sum(itertools.repeat(0))
        case "loop over all exceptions":
            while True:
                try:
                    time.sleep(0.001)
                    raise ValueError("caught")
                except Exception:
                    pass
        case "loop over whatever is raised":
            while True:
                with suppress(BaseException):
                    time.sleep(1000)
        case "print for ever":
            while True:
                print("x" * 10_000)
        case _:
            raise NotImplementedError(how)
    return "through"


def crossed(rank: Rank) -> None:
    """Two groups, entered in opposite order by two of their members."""
    n = rank.world_size
    whole = everyone(rank)
    part = rank.new_group((tuple(range(n - 1)), (n - 1,)))
    if rank.rank == 0:
        part.barrier()
    whole.barrier()
    if rank.rank:
        part.barrier()


def lonely_group(rank: Rank) -> None:
    """One rank does not come to make the groups, which no other program makes."""
    if rank.rank != 1:
        rank.new_group(((0, 3), (1, 2)))


def waits_in_a_pair(rank: Rank) -> None:
    """Rank 1 waits for rank 0 in a group of the two, which has returned."""
    group = rank.new_group(((0, 1), (2, 3)))
    group.barrier()
    if rank.rank == 1:
        group.barrier()


def fail_on_gpus(rank: Rank, how: str, who: int) -> float:
    """Rank ``who`` fails in the manner ``how``; the others wait for it in a collective of NCCL."""
    group = everyone(rank)
    ones = torch.ones(4, device=rank.device)
    if who < 0 or "late" in how:
        group.all_reduce(ones)
    if rank.rank == who:
        _fail(rank, group, how.removeprefix("late "))
    else:
        group.all_reduce(ones)
    return ones.sum().item()


def threshold(rank: Rank, value: int, who: int) -> None:
    """Fails on one rank from 100 on, in one way, and from 1000 on in another."""
    group = everyone(rank)
    if rank.rank == who and value >= 1000:
        raise ValueError(f"{value} is far too large")
    if rank.rank == who and value >= 100:
        raise ValueError(f"{value} is too large")
    group.barrier()


def slow(rank: Rank, how: str, seconds: float) -> str:
    """Rank 1 comes late, and only looks as if it waited for ever."""
    group = everyone(rank)
    if rank.rank == 1:
        match how:
            case "sleeps":
                time.sleep(seconds)
            case "waits for a child":
                subprocess.run(["sleep", str(seconds)], check=True)
            case "holds the interpreter":
                ctypes.PyDLL(None).usleep(int(1e6 * seconds))
    group.all_reduce(torch.ones(1))
    return "through"


def talk(rank: Rank, text: bytes) -> None:
    print(f"hello from {rank.rank}")
    sys.stderr.buffer.write(text)


def print_much(rank: Rank) -> str:
    """More than a pipe holds."""
    for line in range(10_000):
        print(f"{line}: {'x' * 100}")
    return "through"


def leave_with_blocks(rank: Rank, path: str) -> None:
    """A rank that waits in vain has to leave its ``with`` blocks."""
    try:
        fail(rank, "raise")
    finally:
        with Path(path).open("a") as file:
            file.write(f"{rank.rank}\n")


def on_the_device(rank: Rank) -> list[float]:
    mine = torch.tensor([float(rank.rank)], device=rank.device)
    both = torch.empty(rank.world_size, device=rank.device)
    everyone(rank).all_gather_into_tensor(both, mine)
    return both.tolist()


@torch.library.custom_op("tests::summed", mutates_args=())
def _summed(x: torch.Tensor) -> torch.Tensor:
    total = x.clone()
    _lent[-1].all_reduce(total)
    return total


# A custom operator is given nothing but tensors.
_lent: list[Communicator] = []


def sums(rank: Rank, where: str) -> list[float]:
    """The sum over all ranks of their numbers plus one, with the collective inside C++."""
    group = everyone(rank)
    x = torch.tensor([rank.rank + 1.0], requires_grad=True)

    def summed(grad: torch.Tensor) -> torch.Tensor:
        total = grad.clone()
        group.all_reduce(total)
        return total

    if where == "operator":
        _lent.append(group)
        try:
            return _summed(x.detach()).tolist()
        finally:
            _lent.remove(group)
    if where == "mode":
        with Mode(group):
            return (1.0 * x).tolist()
    y = 1.0 * x
    y.register_hook(summed)
    (y * (rank.rank + 1)).backward()
    assert x.grad is not None
    return x.grad.tolist()


_shared: list[Communicator] = []


def meets_in_a_shared_group(rank: Rank) -> None:
    """The first rank to come leaves its group to all, and to later calls."""
    own = everyone(rank)
    if not _shared:
        _shared.append(own)
    _shared[0].barrier()

"""Programs that the tests of the worlds run on ranks."""

import asyncio
import contextvars
import ctypes
import dataclasses
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fixtures.model.layout import Partition
from fixtures.worlds.api import Collective, Communicator, Rank

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


def group_identity(rank: Rank, partition: Partition) -> bool:
    return rank.new_group(partition) is rank.new_group(partition)


def group_of(rank: Rank, partition: Partition) -> tuple[tuple[int, ...], int, int]:
    group = rank.new_group(partition)
    return group.ranks, group.rank_in_group, group.world_size


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


class _Nothing(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # It would import dynamo, which takes seconds.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Meets(_Nothing):
    """Has every operator wait for the other ranks."""

    def __init__(self, group: Communicator) -> None:
        super().__init__()
        self._group = group

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        total = super().__torch_dispatch__(func, types, args, kwargs)
        self._group.all_reduce(total)
        return total


class _NoFunction(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


Settings = tuple[bool, bool, bool, str, torch.dtype, int, bool, bool]


def ambient(rank: Rank) -> list[Settings]:
    """Torch's settings around a collective at which another rank takes over."""

    def settings() -> Settings:
        return (
            torch.is_grad_enabled(),
            torch._C._is_fwd_grad_enabled(),
            torch.is_inference_mode_enabled(),
            str(torch.empty(0).device),
            torch.get_default_dtype(),
            torch._C._len_torch_dispatch_stack(),
            torch.is_autocast_enabled("cpu"),
            torch.is_anomaly_enabled(),
        )

    group = everyone(rank)
    seen = [settings()]
    match rank.rank % 4:
        case 0:
            with torch.no_grad(), _Nothing():
                group.barrier()
                seen.append(settings())
        case 1:
            with torch.inference_mode():
                group.barrier()
                seen.append(settings())
        case 2:
            with torch.device("meta"), _NoFunction(), torch.autocast("cpu"):
                group.barrier()
                seen.append(settings())
        case 3:
            torch.set_default_dtype(torch.float64)
            torch.set_anomaly_enabled(True)
            torch._C._set_fwd_grad_enabled(False)
            group.barrier()
            seen.append(settings())
            torch.set_anomaly_enabled(False)
            torch._C._set_fwd_grad_enabled(True)
            torch.set_default_dtype(torch.float32)
    group.barrier()
    seen.append(settings())
    return seen


class Odd(Exception):  # noqa: N818
    """Cannot be pickled, and is not made from its own ``args``."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.reason = lambda: None


def reduces_at_the_recursion_limit(rank: Rank, who: int) -> tuple[float, int]:
    """Rank ``who`` tries anew, with more room each time, until it can enter a collective."""
    group = everyone(rank)

    def reduced() -> float:
        total = torch.tensor(2.0**rank.rank)
        group.all_reduce(total)
        return total.item()

    def deeper() -> float:
        try:
            return deeper()
        except RecursionError:
            return reduced()

    with rank.record_collectives() as ledger:
        total = deeper() if rank.rank == who else reduced()
    return total, len(ledger)


def fail_on_gpus(rank: Rank, how: str, who: int) -> float:
    """Rank ``who`` fails in the manner ``how``; the others wait for it in a collective of NCCL."""
    group = everyone(rank)
    ones = torch.ones(4, device=rank.device)
    if who < 0 or "late" in how:
        group.all_reduce(ones)
    if rank.rank == who:
        _fail(how.removeprefix("late "), who)
    else:
        group.all_reduce(ones)
    return ones.sum().item()


def waits_in_a_pair(rank: Rank) -> None:
    """Rank 1 waits for rank 0 in a group of the two, which has returned."""
    group = rank.new_group(((0, 1), (2, 3)))
    group.barrier()
    if rank.rank == 1:
        group.barrier()


def fail(rank: Rank, how: str, who: tuple[int, ...], *, collective: bool = True) -> str:
    """Ranks ``who`` fail in the manner ``how``; the others wait for them in a collective."""
    group = everyone(rank)
    if rank.rank in who:
        _fail(how, rank.rank)
    elif collective:
        group.all_reduce(torch.ones(2, 3))
    return "through"


def _fail(how: str, rank: int) -> None:
    match how:
        case "raise":
            raise ValueError(f"rank {rank} will not")
        case "odd":
            raise Odd(1, 2)
        case "chain":
            try:
                _fail("raise", rank)
            except ValueError as error:
                raise KeyError("chained") from error
        case "exit":
            sys.exit(3)
        case "huge":
            sys.exit(10**30)
        case "message":
            sys.exit("enough")
        case "_exit":
            os._exit(4)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "real-time signal":
            os.kill(os.getpid(), signal.SIGRTMIN + 6)
        case "loop":
            while True:
                pass
        case "native loop":
            # Backtracks for ever without giving up the GIL.
            re.match(r"(a+)+$", "a" * 64 + "b")
        case "swallow":
            while True:
                try:
                    while True:
                        time.sleep(0.001)
                except BaseException:
                    pass
        case "skip":
            pytest.skip(f"rank {rank} has no such thing")
        case "stuck":
            # Never looks for signals.
            sum(itertools.repeat(0))
        case "return":
            pass
        case _:
            raise NotImplementedError(how)


def mismatch(rank: Rank) -> None:
    group = everyone(rank)
    if rank.rank == 1:
        group.all_reduce(torch.ones(4, 4))
    else:
        group.barrier()


def mismatch_that_gloo_carries(rank: Rank, what: str) -> None:
    """As many bytes from every rank, but rank 0 means something else by them."""
    group, odd = everyone(rank), rank.rank == 0
    match what:
        case "dtype":
            group.all_reduce(torch.ones(4, dtype=torch.int32 if odd else torch.float32))
        case "shape":
            group.all_reduce(torch.ones((3, 2) if odd else (2, 3)))
        case "kind":
            whole = torch.ones(2 * rank.world_size)
            if odd:
                group.all_reduce(whole)
            else:
                group.reduce_scatter_tensor(torch.empty(2), whole)
        case "groups":
            rank.new_group(((0, 2), (1,)) if odd else ((0, 1), (2,))).barrier()


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
    if where == "not compiled":
        return torch.compiler.disable(summed)(x.detach()).tolist()
    if where == "mode":
        with _Meets(group):
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


def enters_in_a_thread(rank: Rank) -> None:
    """What becomes of the thread is not asked."""
    group = everyone(rank)
    if rank.rank == 0:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(group.barrier)
    else:
        group.barrier()


def enters_from_a_coroutine(rank: Rank) -> int:
    async def main() -> int:
        everyone(rank).barrier()
        return rank.rank

    return asyncio.run(main())


def enters_alone(rank: Rank, how: str) -> None:
    """Rank 0 alone begins a collective that does not block it."""
    group = everyone(rank)
    if rank.rank == 0:
        match how:
            case "all_reduce":
                group.all_reduce(torch.empty(0))
            case "all_gather":
                group.all_gather_into_tensor(torch.empty(0), torch.empty(0))
            case "async":
                dist.all_reduce(torch.ones(2), async_op=True)


def point_to_point(rank: Rank) -> list[float]:
    """What goes between two ranks in a group of three, in every way."""
    everyone(rank)
    got = torch.zeros(3)
    if rank.rank == 0:
        dist.send(torch.ones(1), 1)
        dist.send(torch.ones(1), 1)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), 1)])
        works[0].wait()
    if rank.rank == 1:
        dist.recv(got[0:1], 0)
        dist.recv(got[1:2])
        works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got[2:3], 0)])
        works[0].wait()
    dist.monitored_barrier()
    dist.reduce_scatter(torch.empty(1), [torch.ones(1)] * rank.world_size)
    return got.tolist()


def crossed(rank: Rank) -> None:
    """Two groups, entered in opposite order by two of their members."""
    n = rank.world_size
    one = everyone(rank)
    other = rank.new_group((tuple(range(n - 1)), (n - 1,)))
    if rank.rank == 0:
        other.barrier()
    one.barrier()
    if rank.rank:
        other.barrier()


def lonely_group(rank: Rank) -> None:
    """One rank does not come to make the groups."""
    if rank.rank != 1:
        rank.new_group(((0, 1), (2, 3)))


def waits_for_work(rank: Rank) -> None:
    """A deadlock in wait(), outside torch.distributed's Python."""
    if rank.rank:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        assert work is not None
        work.wait()


def slow(rank: Rank, who: int, seconds: float) -> str:
    group = everyone(rank)
    if rank.rank == who:
        time.sleep(seconds)
    group.all_reduce(torch.ones(1))
    return "through"


def threshold(rank: Rank, value: int, who: int) -> None:
    """Fails on one rank from 100 on, in one way, and from 1000 on in another."""
    group = everyone(rank)
    if rank.rank == who and value >= 1000:
        raise ArithmeticError(f"{value} is far too large")
    if rank.rank == who and value >= 100:
        raise ValueError(f"{value} is too large")
    group.barrier()


class Stop(BaseException):
    """Is no ``Exception``."""


def stops(rank: Rank) -> None:
    if rank.rank == 1:
        raise Stop("no such thing here")
    everyone(rank).barrier()


def explode() -> None:
    raise LookupError("it went off")


class Bomb:
    """Raises where it is unpickled."""

    def __reduce__(self) -> Any:
        return explode, ()


def unpicklable(rank: Rank) -> Any:
    return (lambda: None) if rank.rank == 1 else None


def leaves_zombies(rank: Rank) -> None:
    """Each of them is left to whoever takes in orphans."""
    for _ in range(10):
        subprocess.run(["sh", "-c", "true &"], check=True)


def interrupts_a_child(rank: Rank) -> int:
    child = subprocess.Popen(["sleep", "1000"])
    child.send_signal(signal.SIGINT)
    return child.wait()


def handles_the_signal_for_dumps(rank: Rank) -> None:
    signal.signal(signal.SIGUSR1, lambda number, frame: None)


def prints_bytes(rank: Rank, text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.flush()


def talk(rank: Rank) -> None:
    print(f"hello from {rank.rank}")
    print("and a warning", file=sys.stderr)


def cleanup_needed(rank: Rank, path: str) -> None:
    """A rank that waits in vain has to leave its ``with`` blocks."""
    try:
        fail(rank, "raise", (1,))
    finally:
        with open(path, "a") as file:
            file.write(f"{rank.rank}\n")


def on_the_device(rank: Rank) -> list[float]:
    mine = torch.tensor([float(rank.rank)], device=rank.device)
    both = torch.empty(rank.world_size, device=rank.device)
    everyone(rank).all_gather_into_tensor(both, mine)
    return both.tolist()


def leaves_a_child(rank: Rank, how: str, path: str) -> None:
    """Rank 1 fails in the manner ``how`` and leaves a process that holds all that it held."""
    group = everyone(rank)
    if rank.rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(1000)
            os._exit(0)
        with open(path, "w") as file:
            file.write(str(child))
        _fail(how, rank.rank)
    group.barrier()


def starts_a_program(rank: Rank, *, session: bool = False) -> int:
    """The id of a process that the rank does not wait for."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=session).pid


def shares_memory(rank: Rank) -> str:
    """The name of memory that the rank never unlinks."""
    memory = SharedMemory(create=True, size=1)
    rank.state["memory"] = memory
    return memory.name


def raises_before_another_dies(rank: Rank) -> None:
    group = everyone(rank)
    if rank.rank == 0:
        group.all_reduce(torch.empty(3, 2).t())
    if rank.rank == 1:
        time.sleep(0.3)
        os._exit(4)
    group.barrier()


def returns_twice(rank: Rank) -> str:
    """A forked child comes back from here, too, and before its parent does."""
    child = os.fork()
    if child == 0:
        return "child"
    os.waitpid(child, 0)
    return "rank"


def forks_into_a_collective(rank: Rank) -> int:
    """How a child ends that enters a collective."""
    group = everyone(rank)
    child = os.fork()
    if child == 0:
        try:
            group.barrier()
        except RuntimeError:
            os._exit(7)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    group.barrier()
    return os.waitstatus_to_exitcode(status)


def inherited_by_programs(rank: Rank) -> list[str]:
    """What a program that this rank executes would hold of the world's pipes and files."""
    held = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if fd > 2 and target.startswith(("pipe:", "/memfd:")) and os.get_inheritable(fd):
                held.append(target)
    # Of its own pipe, gloo has both ends here.
    return [target for target in held if held.count(target) == 1]


def ends_after_its_answer(rank: Rank) -> None:
    """Rank 1 does; the others take longer."""
    if rank.rank == 1:
        threading.Timer(0.1, os._exit, (6,)).start()
    else:
        time.sleep(0.6)


def meddles(rank: Rank, what: str) -> str:
    """Rank 1 does something to the descriptors over which the world speaks with it."""
    frame = sys._getframe()
    while frame.f_code.co_name != "serve":
        assert frame.f_back is not None
        frame = frame.f_back
    calls, answers, whereabouts = (
        frame.f_locals[name] for name in ("calls", "answers", "whereabouts")
    )
    if rank.rank == 1:
        match what:
            case "answers before":
                os.write(answers, b"Zero is no message")
            case "answers in vain":
                os.write(answers, b"B" + (3).to_bytes(8, "little") + b"oh!")
            case "answers after":
                threading.Timer(0.2, os.write, (answers, b"Zero")).start()
            case "calls":
                os.close(calls)
            case "output":
                os.close(1)
            case _:
                os.write(whereabouts, what.encode())
                time.sleep(0.5)
    return "through"


@dataclasses.dataclass
class NotRebuilt:
    """Is no argument of its own making."""

    one: int = dataclasses.field(init=False, default=1)


def returns_what_cannot_be_rebuilt(rank: Rank, who: int) -> NotRebuilt | None:
    return NotRebuilt() if rank.rank == who else None


def prints_for_ever(rank: Rank) -> None:
    if rank.rank == 1:
        while True:
            print("x" * 10_000)


def waits_for_a_child(rank: Rank) -> str:
    """A wait that is for no collective, while the other ranks are in one."""
    if rank.rank == 1 and os.fork() == 0:
        time.sleep(1)
        os._exit(0)
    if rank.rank == 1:
        os.wait()
    everyone(rank).barrier()
    return "through"


class SlowToPickle:
    """Takes its time in a collective of objects."""

    def __getstate__(self) -> dict[str, Any]:
        time.sleep(0.6)
        return {}


def enters_late(group: Communicator) -> None:
    time.sleep(0.8)
    group.barrier()


def enters_after_a_child(group: Communicator) -> None:
    subprocess.run(["sleep", "0.8"], check=True)
    group.barrier()


def goes_on_by_itself(rank: Rank, how: str) -> str:
    """Rank 0 sleeps for a while, though its main thread is where it might wait for ever."""
    group, half = everyone(rank), rank.new_group(((0, 1), (2,)))
    match how:
        case "object":
            own = SlowToPickle() if rank.rank == 0 else None
            dist.all_gather_object([None] * rank.world_size, own)
        case "timer":
            if rank.rank == 0:
                future: torch.futures.Future[int] = torch.futures.Future()
                threading.Timer(0.8, future.set_result, (1,)).start()
                future.wait()
        case "thread" | "child":
            if rank.rank == 0:
                enters = enters_late if how == "thread" else enters_after_a_child
                helper = threading.Thread(target=enters, args=(half,))
                helper.start()
                group.barrier()
                helper.join()
            elif rank.rank == 1:
                half.barrier()
                group.barrier()
            else:
                group.barrier()
    group.barrier()
    return "through"


def cannot_tell_then_is_slow(rank: Rank) -> str:
    """Rank 1 is asked where it is while it holds the interpreter, in sleep."""
    group = everyone(rank)
    group.barrier()
    if rank.rank == 1:
        ctypes.PyDLL(None).usleep(900_000)
    group.barrier()
    if rank.rank == 1:
        time.sleep(2)
    group.barrier()
    return "through"


def leaves_settings(rank: Rank, *, fails: bool) -> tuple[torch.dtype, bool]:
    """Settings at the start; other ones stay."""
    found = torch.get_default_dtype(), torch.is_grad_enabled()
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    if fails:
        raise ValueError("and so they stay")
    return found


class NoMessage(Exception):  # noqa: N818
    """Raises when asked for its message."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class NoForm(Exception):  # noqa: N818
    """Is interrupted when pickled."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def explode_elsewhere(pid: int) -> Exception:
    if os.getpid() != pid:
        explode()
    return ValueError("it ticks")


class SlowBomb(Exception):  # noqa: N818
    """Raises where it is unpickled, but not in the process that made it."""

    def __reduce__(self) -> Any:
        return explode_elsewhere, (os.getpid(),)


def recurses(depth: int) -> int:
    return recurses(depth + 1) + 1


def raises_oddly(rank: Rank, what: str) -> None:
    group = everyone(rank)
    if rank.rank == 1:
        match what:
            case "no message":
                raise NoMessage
            case "no form":
                raise NoForm
            case "bomb":
                raise SlowBomb("tick")
            case "deep":
                deep: list[Any] = []
                for _ in range(100_000):
                    deep = [deep]
                raise ValueError(deep)
            case "recursion":
                recurses(0)
            case "no lines":
                raise SyntaxError("it is odd", ("file", 1, "a", "text"))  # type: ignore[arg-type]
            case "no stdout":
                sys.stdout = None
                raise ValueError("it is gone")
            case "closed stdout":
                sys.stdout.close()
                raise ValueError("it is closed")
    group.barrier()


def returns_a_bomb(rank: Rank) -> Bomb | None:
    return Bomb() if rank.rank == 1 else None


def destroys_the_process_group(rank: Rank, who: int | None) -> None:
    """As the last line of many a script does; on one rank, or on all."""
    if who in (None, rank.rank):
        dist.destroy_process_group()

"""Programs that do to their process what ranks of a simulated world can do to all of them."""

import asyncio
import io
import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
import torch
from torch.overrides import TorchFunctionMode

from fixtures.worlds.api import Rank
from fixtures.worlds.simulated import SimulatedWorld
from tests.worlds.programs import everyone


def holds_out(rank: Rank, how: str) -> None:
    """Rank 1 never ends, and keeps itself from being interrupted."""
    if rank.rank == 1:
        _HOLD_OUT[how]()
    everyone(rank).barrier()


def _sleep_for_ever() -> None:
    while True:
        time.sleep(0.05)


def _with_signals_blocked() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _sleep_for_ever()


def _with_alarm(handler: Any) -> Callable[[], None]:
    def hold_out() -> None:
        signal.signal(signal.SIGALRM, handler)
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    return hold_out


def _with_every_signal_ignored() -> None:
    for number in signal.valid_signals():
        # What nobody can ignore, and what the world keeps for itself.
        with suppress(OSError):
            signal.signal(number, signal.SIG_IGN)
    threading.Event().wait()


def _with_every_signal_handled() -> None:
    for number in signal.valid_signals():
        with suppress(OSError):
            signal.signal(number, lambda number, frame: None)
    threading.Event().wait()


def _with_reads_begun_again() -> None:
    for number in signal.valid_signals():
        with suppress(OSError):
            signal.siginterrupt(number, False)
    os.read(os.pipe()[0], 1)


class _EqualToNothing:
    def __call__(self, number: int, frame: Any) -> None:
        """Handles a signal."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]


def _with_the_timer_stopped() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    time.sleep(1000)


def _with_the_timer_stopped_on_expiry() -> None:
    try:
        time.sleep(1000)
    finally:
        _with_the_timer_stopped()


def _swallowing() -> None:
    while True:
        try:  # noqa: SIM105
            time.sleep(0.02)
        except BaseException:
            pass


def _swallowing_in_a_loop() -> None:
    while True:
        with suppress(BaseException):
            while True:
                time.sleep(0.001)


def _swallowing_in_finally() -> None:
    while True:
        try:
            time.sleep(0.02)
            continue
        finally:
            continue  # noqa: B012


def _swallowing_in_calls_from_c() -> None:
    def call(_: int) -> None:
        with suppress(BaseException):
            time.sleep(0.001)

    list(map(call, itertools.count()))


def _swallowing_all_the_way_up() -> None:
    while True:
        try:
            try:
                time.sleep(0.001)
            except BaseException:
                pass
            finally:
                time.sleep(0.001)
        except BaseException:
            with suppress(BaseException):
                time.sleep(0.001)


_HOLD_OUT: dict[str, Callable[[], None]] = {
    "signals blocked": _with_signals_blocked,
    "alarm ignored": _with_alarm(signal.SIG_IGN),
    "alarm fatal": _with_alarm(signal.SIG_DFL),
    "alarm taken": _with_alarm(lambda number, frame: None),
    "alarm not to compare": _with_alarm(_EqualToNothing()),
    "signals ignored": _with_every_signal_ignored,
    "signals handled": _with_every_signal_handled,
    "reads begun again": _with_reads_begun_again,
    "timer stopped": _with_the_timer_stopped,
    "timer stopped later": _with_the_timer_stopped_on_expiry,
    "swallowing": _swallowing,
    "swallowing in a loop": _swallowing_in_a_loop,
    "swallowing in finally": _swallowing_in_finally,
    "swallowing in C": _swallowing_in_calls_from_c,
    "swallowing everywhere": _swallowing_all_the_way_up,
}
HOLD_OUT = tuple(_HOLD_OUT)


def loops_in_a_world_of_its_own(rank: Rank) -> None:
    """Its world has more time than the one that it is in."""
    SimulatedWorld(1, timeout=1000).run(_loops)


def _loops(rank: Rank) -> None:
    _sleep_for_ever()


WORLDS: list[SimulatedWorld] = []


def runs_a_program_where_it_is(rank: Rank) -> None:
    WORLDS[-1].run(device_before_and_after)


def _on_the_way_out(rank: Rank, failing: int, leave: Callable[[], object]) -> None:
    """One rank fails; the others, which wait for it, ``leave`` in a ``finally``."""
    group = everyone(rank)
    if rank.rank == failing:
        raise ValueError("it is too much")
    try:
        group.barrier()
    finally:
        leave()


def never_unwinds(rank: Rank, *, swallows: bool) -> None:
    """Rank 2 fails; the others never leave."""

    def leave() -> None:
        while True:
            with suppress(*([BaseException] if swallows else [])):
                time.sleep(0.01)

    _on_the_way_out(rank, 2, leave)


def skips_on_its_way_out(rank: Rank) -> None:
    """Rank 1 fails; rank 0 changes a setting and skips the test."""

    def leave() -> None:
        torch.set_default_dtype(torch.float64)
        pytest.skip("on the way out")

    _on_the_way_out(rank, 1, leave)


LEFT: list[int] = []


def stops_on_its_way_out(rank: Rank) -> None:
    """Rank 3 fails; the others leave, two of them with a Ctrl-C."""

    def leave() -> None:
        LEFT.append(rank.rank)
        if rank.rank < 2:
            raise KeyboardInterrupt

    _on_the_way_out(rank, 3, leave)


def forks_on_its_way_out(rank: Rank) -> None:
    """Rank 1 fails; rank 0 forks."""
    _on_the_way_out(rank, 1, os.fork)


class _Endless(Exception):  # noqa: N818
    """Cannot be told."""

    def __str__(self) -> str:
        return "" if self.args == ("repr",) else _endless()

    def __repr__(self) -> str:
        return "" if self.args == ("str",) else _endless()


class _EndlessStop(BaseException):
    def __str__(self) -> str:
        return _endless()


def _endless() -> str:
    while True:
        time.sleep(0.01)


class _EndlessCode:
    def __repr__(self) -> str:
        return _endless()


class _EndlessWhereItArrives:
    def __reduce__(self) -> Any:
        return _endless, ()


class _EndlessElsewhere:
    """Can be unpacked where it was made alone."""

    def __reduce__(self) -> Any:
        return _endless_elsewhere, (os.getpid(),)


def _endless_elsewhere(pid: int) -> _EndlessElsewhere:
    if pid != os.getpid():
        _endless()
    return _EndlessElsewhere()


def raises_what_never_arrives(rank: Rank) -> None:
    """Rank 1 raises an exception with something that never arrives."""
    if rank.rank == 1:
        error = ValueError("it is too much")
        error.__dict__["with"] = _EndlessElsewhere()
        raise error


def never_tells(rank: Rank, what: str) -> Any:
    """Rank 1 ends with something that takes for ever to be told, or to be unpacked."""
    if rank.rank == 1:
        match what:
            case "str" | "repr":
                raise _Endless(what)
            case "cause":
                raise ValueError("from it") from _Endless("str")
            case "context":
                try:
                    raise _Endless("str")
                except _Endless:
                    _sleep_for_ever()
            case "stop":
                raise _EndlessStop
            case "exit":
                raise SystemExit(_EndlessCode())
            case "result":
                return _EndlessWhereItArrives()
    return None


def changes(rank: Rank, what: str, *, fails: bool) -> None:
    """Leaves a setting of torch or of the process other than it was."""
    group = everyone(rank)
    if rank.rank == 1:
        match what:
            case "device":
                torch.set_default_device("meta")
            case "mask":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM, signal.SIGINT})
            case "timer":
                signal.signal(signal.SIGPROF, lambda number, frame: None)
                signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
            case "handler":
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            case "mode":
                torch.device("meta").__enter__()
            case "inference":
                rank.state["guard"] = torch.inference_mode()
                rank.state["guard"].__enter__()
            case "output":
                sys.stdout = io.StringIO()
            case "autocast":
                torch.autocast("cpu").__enter__()
            case "alarm":
                signal.alarm(1000)
    group.barrier()
    if rank.rank == 1 and fails:
        raise ValueError("and so it stays")


def settings(rank: Rank | None) -> tuple[str, str, bool, bool, bool, set[Any], Any]:
    """Output, device, inference mode, autocast, alarm, blocked signals, Ctrl-C."""
    return (
        type(sys.stdout).__name__,
        str(torch.empty(0).device),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        signal.getitimer(signal.ITIMER_REAL)[0] > 500,
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        str(signal.getsignal(signal.SIGINT)),
    )


def device_before_and_after(rank: Rank) -> list[str]:
    """Each rank has a default device of its own, also where another rank takes over."""
    group = everyone(rank)
    before = str(torch.empty(0).device)
    torch.set_default_device("meta" if rank.rank else "cpu")
    group.barrier()
    return [before, str(torch.empty(0).device)]


def leaves_a_thread(rank: Rank) -> None:
    if rank.rank == 1:
        threading.Thread(target=time.sleep, args=(1000,)).start()


async def _try_again() -> None:
    # Once there is no event loop any more, it fails at once every time.
    while True:
        with suppress(BaseException):
            await asyncio.sleep(0.01)


async def _waits() -> None:
    await asyncio.create_task(_try_again())


def tries_again(rank: Rank) -> None:
    """A coroutine of rank 1 does not end when it is freed, either."""
    if rank.rank == 1:
        asyncio.run(_waits())
    everyone(rank).barrier()


class _NeverFreed:
    def __del__(self) -> None:
        while True:
            pass


def keeps_what_never_ends_when_it_is_freed(rank: Rank) -> None:
    rank.state["kept"] = _NeverFreed()
    raise ValueError("it is too much")


def forgets_who_it_is(rank: Rank) -> None:
    """Leaves a patch behind that lets every process seem to be a child of this one."""
    mock.patch("os.getpid", return_value=-1).start()
    everyone(rank).barrier()


def expires(rank: Rank, how: str) -> None:
    """What interrupts rank 1 is caught, once, and comes out as something else or not at all."""
    if rank.rank == 1:
        try:
            time.sleep(100)
        except BaseException as error:
            match how:
                case "never told":
                    raise error from _Endless("str")
                case "wrapped":
                    raise RuntimeError("it was interrupted") from error
                case "replaced":
                    raise RuntimeError("it was interrupted") from None
                case "exit":
                    sys.exit(3)
    everyone(rank).barrier()


def tries_for_ever(rank: Rank) -> None:
    """Rank 0 fails; the others enter again whatever happens."""
    group = everyone(rank)
    if rank.rank == 0:
        raise ValueError("it is too much")
    while True:
        with suppress(BaseException):
            group.barrier()


def exits_oddly(rank: Rank) -> None:
    raise SystemExit(_NoForm())


class _NoForm:
    def __repr__(self) -> str:
        raise ValueError("it has none")


def tries_worlds_of_its_own(rank: Rank) -> None:
    """Worlds that have more time, in which every time-out is swallowed, for ever."""
    while True:
        with suppress(Exception):
            SimulatedWorld(1, timeout=1000).run(_swallows_all)


def _swallows_all(rank: Rank) -> None:
    while True:
        with suppress(BaseException):
            time.sleep(0.01)


def leaves_a_process(rank: Rank) -> None:
    if rank.rank == 1:
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,)).start()


def calls_itself_for_ever(rank: Rank) -> None:
    while True:
        try:
            return calls_itself_for_ever(rank)
        except Exception:
            continue


class _NeverReturns(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        while True:
            time.sleep(0.01)


def leaves_a_mode_that_never_returns(rank: Rank) -> None:
    _NeverReturns().__enter__()

"""What programs do to the process that simulated ranks share: none outlasts the call."""

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from fixtures.worlds import simulated
from fixtures.worlds.errors import RankDied, RankRaised, Status, TimedOut
from fixtures.worlds.simulated import SimulatedWorld
from fixtures.worlds.watchdog import within
from tests.worlds import programs, unruly
from tests.worlds.conftest import Get
from tests.worlds.test_failures import assert_every_rank_is_named, assert_whole

ROOT = Path(__file__).parents[2]


def output_of(script: str) -> str:
    """What a process prints that runs ``script`` and comes to an end."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, check=True, timeout=60, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout


def timed_out(world: SimulatedWorld, program: Any, *args: Any) -> TimedOut:
    settings = world.run(unruly.settings)
    world.timeout = 1
    with pytest.raises(TimedOut, match="not over after 1 s") as caught:
        world.run(program, *args)
    assert_every_rank_is_named(caught.value, world.size)
    world.timeout = 30
    assert_whole(world)
    assert world.run(unruly.settings) == settings
    return caught.value


@pytest.mark.parametrize("how", unruly.HOLD_OUT)
def test_no_program_keeps_itself_from_being_interrupted(how: str) -> None:
    error = timed_out(SimulatedWorld(3), unruly.holds_out, how)
    assert error.reports[1].status is Status.RUNNING
    assert "unruly.py" in error.reports[1].details
    assert error.reports[2].summary == "had not begun"


def test_a_world_in_a_world_has_no_more_time() -> None:
    world = SimulatedWorld(2, timeout=1)
    # Of the inner call, or of the outer one meanwhile.
    with pytest.raises((TimedOut, RankRaised), match="the call was not over after"):
        world.run(unruly.loops_in_a_world_of_its_own)
    world.timeout = 30
    assert_whole(world)


def test_worlds_in_a_world_do_not_keep_it_from_its_end() -> None:
    timed_out(SimulatedWorld(2), unruly.tries_worlds_of_its_own)


def test_a_call_that_is_interrupted_while_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Any, timeout: float) -> TimedOut:
        raise KeyboardInterrupt

    world = SimulatedWorld(2, timeout=30)
    assert world.run(programs.count) == [(1, 1), (2, 2)]
    with monkeypatch.context() as patch:
        patch.setattr(simulated._Call, "timed_out", interrupted)
        world.timeout = 1
        with pytest.raises(KeyboardInterrupt):
            world.run(unruly.expires, "swallowed")
    world.timeout = 30
    assert world.run(programs.count) == [(1, 1), (2, 2)]


def test_a_world_in_a_call_takes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimulatedWorld(2, timeout=30)
    monkeypatch.setattr(unruly, "WORLDS", [world])
    with pytest.raises(RankRaised, match="this world runs a program already"):
        world.run(unruly.runs_a_program_where_it_is)
    assert_whole(world)


@pytest.mark.parametrize("what", ["str", "repr", "cause", "context", "stop", "exit", "result"])
def test_what_cannot_be_told_is_given_up(what: str) -> None:
    error = timed_out(SimulatedWorld(3), unruly.never_tells, what)
    assert error.reports[1].status is Status.RUNNING
    assert error.__cause__ is None


@pytest.mark.parametrize("swallows", [False, True])
def test_ranks_that_never_leave_their_finally_are_given_up(swallows: bool) -> None:
    world = SimulatedWorld(3, timeout=1)
    with pytest.raises(RankRaised, match="rank 2 raised ValueError: it is too much") as caught:
        world.run(unruly.never_unwinds, swallows=swallows)
    assert_every_rank_is_named(caught.value, 3)
    del caught
    world.timeout = 30
    assert_whole(world)


def test_what_is_raised_on_the_way_out_is_not_the_failure() -> None:
    world = SimulatedWorld(2, timeout=30)
    before = world.run(unruly.settings)
    with pytest.raises(RankRaised, match="rank 1 raised ValueError: it is too much"):
        world.run(unruly.skips_on_its_way_out)
    assert torch.get_default_dtype() is torch.float32
    assert world.run(unruly.settings) == before


@pytest.mark.parametrize("device", [None, "cpu", "meta"])
def test_default_devices_are_not_shared(device: str | None) -> None:
    torch.set_default_device(device)
    try:
        mine = device or "cpu"
        assert SimulatedWorld(2).run(unruly.device_before_and_after) == [
            [mine, "cpu"],
            [mine, "meta"],
        ]
        assert str(torch.empty(0).device) == mine
        torch.set_default_device(None)
        assert str(torch.empty(0).device) == "cpu"
    finally:
        torch.set_default_device(None)


def test_no_thread_of_a_program_keeps_the_process_from_ending() -> None:
    script = (
        "from fixtures.worlds.simulated import SimulatedWorld\n"
        "from tests.worlds import unruly\n"
        "SimulatedWorld(2).run(unruly.leaves_a_thread)\n"
    )
    assert output_of(script) == ""


def test_no_process_of_a_program_keeps_this_one_from_ending() -> None:
    script = (
        "from fixtures.worlds.simulated import SimulatedWorld\n"
        "from tests.worlds import unruly\n"
        "SimulatedWorld(2).run(unruly.leaves_a_process)\n"
    )
    assert output_of(script) == ""


def test_what_never_ends_when_it_is_freed_does_not_hold_up_the_caller() -> None:
    script = (
        "import gc\n"
        "from fixtures.worlds.errors import TimedOut\n"
        "from fixtures.worlds.simulated import SimulatedWorld\n"
        "from tests.worlds import programs, unruly\n"
        "world = SimulatedWorld(2, timeout=1)\n"
        "try:\n"
        "    world.run(unruly.tries_again)\n"
        "except TimedOut:\n"
        "    gc.collect()\n"
        "    print(world.run(programs.my_rank))\n"
    )
    assert output_of(script) == "[(0, 2), (1, 2)]\n"


def test_what_a_program_kept_is_freed_in_time() -> None:
    script = (
        "from fixtures.worlds.errors import RankRaised\n"
        "from fixtures.worlds.simulated import SimulatedWorld\n"
        "from tests.worlds import unruly\n"
        "try:\n"
        "    SimulatedWorld(3).run(unruly.keeps_what_never_ends_when_it_is_freed)\n"
        "except RankRaised as error:\n"
        "    told = str(error)\n"
        "print(told.splitlines()[0])\n"
    )
    assert output_of(script) == "rank 0 raised ValueError: it is too much\n"


def test_a_process_that_seems_to_be_another_is_not_ended() -> None:
    script = (
        "from fixtures.worlds.simulated import SimulatedWorld\n"
        "from tests.worlds import programs, unruly\n"
        "world = SimulatedWorld(2)\n"
        "world.run(unruly.forgets_who_it_is)\n"
        "print(world.run(programs.my_rank))\n"
    )
    assert output_of(script) == "[(0, 2), (1, 2)]\n"


@pytest.mark.parametrize("where", ["operator", "mode", "backward"])
def test_a_collective_inside_c_is_refused(where: str, processes: Get) -> None:
    assert processes(3).run(programs.sums, where) == [[6.0]] * 3
    world = SimulatedWorld(3, timeout=30)
    with pytest.raises(RankRaised, match=r"all_reduce inside what torch runs from C\+\+"):
        world.run(programs.sums, where)
    assert_whole(world)


def test_a_collective_that_nothing_compiles_is_none_inside_c() -> None:
    world = SimulatedWorld(2, timeout=60)
    assert world.run(programs.sums, "not compiled") == [[3.0], [3.0]]


@pytest.mark.parametrize("program", [programs.meets_in_a_shared_group, programs.enters_in_a_thread])
def test_groups_are_for_the_program_that_made_them(program: Any) -> None:
    world = SimulatedWorld(3, timeout=30)
    for _ in range(2):
        with pytest.raises(RankRaised, match=r"barrier in a group of rank \d, but not by"):
            world.run(program)
        assert_whole(world)


def test_a_child_of_a_rank_enters_no_collective() -> None:
    assert SimulatedWorld(2, timeout=30).run(programs.forks_into_a_collective) == [7, 7]


def test_every_rank_is_left_though_one_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unruly, "LEFT", [])
    world = SimulatedWorld(4, timeout=30)
    with pytest.raises(KeyboardInterrupt):
        world.run(unruly.stops_on_its_way_out)
    assert unruly.LEFT == [0, 1, 2]
    assert_whole(world)


@pytest.mark.parametrize("how", ["swallowed", "wrapped", "replaced", "exit", "never told"])
def test_a_call_that_was_interrupted_has_timed_out(how: str) -> None:
    timed_out(SimulatedWorld(2), unruly.expires, how)


def test_only_the_first_rank_that_holds_out_is_given_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[bool] = []

    def noted(seconds: float, work: Any, *, lenient: bool = True) -> Any:
        given.append(lenient)
        return within(seconds, work, lenient=lenient)

    world = SimulatedWorld(5, timeout=30)
    with monkeypatch.context() as patch:
        patch.setattr(simulated, "within", noted)
        with pytest.raises(RankRaised, match="rank 0 raised ValueError: it is too much"):
            world.run(unruly.tries_for_ever)
    # The call itself, and four ranks to be ended.
    assert given == [True, True, False, False, False]
    assert_whole(world)


def test_an_exit_that_cannot_be_told() -> None:
    with pytest.raises(RankDied, match="exited with <its form cannot be told: ValueError>"):
        SimulatedWorld(2, timeout=30).run(unruly.exits_oddly)


def test_a_callers_event_loop_goes_on() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert_whole(SimulatedWorld(2, timeout=30))
        assert asyncio.get_running_loop() is loop

    asyncio.run(main())


def test_a_call_in_a_thread_changes_nothing() -> None:
    before = signal.signal, signal.pthread_sigmask, threading.Thread.start
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(RuntimeError, match="must run in the main thread"),
    ):
        pool.submit(SimulatedWorld(2).run, programs.my_rank).result()
    assert (signal.signal, signal.pthread_sigmask, threading.Thread.start) == before


def test_a_child_of_a_rank_on_its_way_out_does_not_come_back() -> None:
    script = (
        "from fixtures.worlds.errors import RankRaised\n"
        "from fixtures.worlds.simulated import SimulatedWorld\n"
        "from tests.worlds import unruly\n"
        "try:\n"
        "    SimulatedWorld(2, timeout=30).run(unruly.forks_on_its_way_out)\n"
        "except RankRaised:\n"
        "    print('told', flush=True)\n"
    )
    assert output_of(script) == "told\n"


def test_a_tracer_lets_no_alarm_into_the_end_of_a_call() -> None:
    def trace(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code is within.__code__ and callable(signal.getsignal(signal.SIGALRM)):
            # Its handler runs in here, and what that raises is raised there.
            signal.raise_signal(signal.SIGALRM)
        return trace

    world, before = SimulatedWorld(2, timeout=1), sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(TimedOut):
            world.run(unruly.expires, "swallowed")
    finally:
        sys.settrace(before)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    world.timeout = 30
    assert_whole(world)


# What Python calls by itself, as when it collects garbage, fails at the recursion limit.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_endless_recursion_that_is_tried_again() -> None:
    timed_out(SimulatedWorld(2), unruly.calls_itself_for_ever)


# With two ranks the sum was wrong, with more of them the others waited in vain.
@pytest.mark.parametrize(("size", "who"), [(2, 0), (3, 0), (3, 2)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_rank_that_could_not_enter_a_collective_may_try_again(size: int, who: int) -> None:
    world = SimulatedWorld(size, timeout=30)
    got = world.run(programs.reduces_at_the_recursion_limit, who)
    assert got == [(2.0**size - 1, 1)] * size


def test_a_mode_that_never_returns_is_left() -> None:
    world = SimulatedWorld(2, timeout=30)
    world.run(unruly.leaves_a_mode_that_never_returns)
    assert_whole(world)

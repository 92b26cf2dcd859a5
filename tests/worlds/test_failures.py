"""What worlds do when ranks raise, die, hang, or leave each other waiting."""

import errno
import os
import re
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fixtures.worlds import nursery
from fixtures.worlds.api import World
from fixtures.worlds.channel import readable
from fixtures.worlds.errors import (
    CannotStart,
    CollectiveMismatch,
    Deadlock,
    ForeignError,
    RankDied,
    RankRaised,
    Status,
    TimedOut,
    WorldError,
)
from fixtures.worlds.handle import OUTPUT_LIMIT_BYTES, RankHandle
from fixtures.worlds.nursery import Zygote, zygote_for
from fixtures.worlds.offspring import Offspring
from fixtures.worlds.processes import ProcessWorld
from fixtures.worlds.simulated import SimulatedWorld
from tests.worlds import asks_while_imported, hangs_in_ranks, programs, unruly
from tests.worlds.conftest import Get
from tests.worlds.test_cleanup import alive, assert_gone

WORLD = (0, 1, 2, 3)


def assert_whole(world: World) -> None:
    assert world.run(programs.my_rank) == [(rank, world.size) for rank in range(world.size)]
    assert len(world.run(programs.all_collectives, (tuple(range(world.size)),), torch.int64))


def assert_every_rank_is_named(error: WorldError, size: int) -> None:
    assert [report.rank for report in error.reports] == list(range(size))
    named: set[int] = set()
    for line in str(error).splitlines():
        if match := re.match(r"ranks? ([0-9, -]+): ", line):
            for run in match[1].split(", "):
                first, _, last = run.partition("-")
                named |= set(range(int(first), int(last or first) + 1))
    assert named == set(range(size))


def shortly(world: World, seconds: float) -> World:
    """``world`` with less time a call, once its ranks have imported what takes longer."""
    world.timeout = 60.0  # type: ignore[attr-defined]
    assert_whole(world)
    world.timeout = seconds  # type: ignore[attr-defined]
    return world


def failing(world: World, *args: object, **kwargs: object) -> WorldError:
    with pytest.raises(WorldError) as caught:
        world.run(programs.fail, *args, **kwargs)  # type: ignore[arg-type]
    assert_every_rank_is_named(caught.value, world.size)
    world.timeout = 30.0  # type: ignore[attr-defined]
    assert_whole(world)
    return caught.value


@pytest.mark.parametrize("who", [(0,), (2,), (1, 3), WORLD])
def test_raising(worlds: Get, who: tuple[int, ...]) -> None:
    error = failing(worlds(4), "raise", who)
    assert type(error) is RankRaised
    assert list(error.exceptions) == list(who)
    assert all(type(one) is ValueError for one in error.exceptions.values())
    assert error.__cause__ is error.__context__ is error.exceptions[who[0]]
    assert str(error).startswith(f"rank {who[0]} raised ValueError: rank {who[0]} will not\n")
    assert "def _fail" not in str(error)
    assert 'raise ValueError(f"rank {rank} will not")' in str(error)
    for report in error.reports:
        waits = report.rank not in who
        assert report.status == (Status.WAITING if waits else Status.RAISED)
        if waits:
            assert "all_reduce over ranks (0, 1, 2, 3) of float32 (2, 3)" in report.summary
            assert "programs.py:" in report.summary
            assert report.summary.endswith(" in fail")
            assert "group.all_reduce(torch.ones(2, 3))" in report.details


def test_an_exception_brings_its_place_along(worlds: Get) -> None:
    error = failing(worlds(2), "chain", (1,))
    assert isinstance(error.__cause__, KeyError)
    assert isinstance(error.__cause__.__cause__, ValueError)
    for one in (error.__cause__, error.__cause__.__cause__):
        last = traceback.extract_tb(one.__traceback__)[-1]
        assert Path(last.filename).name == "programs.py"
        assert "raise" in (last.line or "")


def test_an_exception_that_cannot_travel_is_described(processes: Get) -> None:
    error = failing(processes(2), "odd", (1,))
    assert isinstance(error.exceptions[1], ForeignError)
    assert error.exceptions[1].type_name == "tests.worlds.programs.Odd"
    assert "Odd: 1 and 2" in str(error)
    assert error.exceptions[1].__traceback__ is not None


@pytest.mark.parametrize("what", ["no message", "no form", "no lines", "recursion", "bomb", "deep"])
def test_an_odd_exception(worlds: Get, what: str) -> None:
    with pytest.raises(RankRaised, match="rank 1 raised") as caught:
        worlds(2).run(programs.raises_oddly, what)
    assert list(caught.value.exceptions) == [1]
    assert_every_rank_is_named(caught.value, 2)
    assert_whole(worlds(2))


@pytest.mark.parametrize("what", ["no stdout", "closed stdout"])
def test_an_exception_without_output(processes: Get, what: str) -> None:
    with pytest.raises(RankRaised, match="rank 1 raised ValueError: it is"):
        processes(2).run(programs.raises_oddly, what)
    assert_whole(processes(2))


def test_a_result_that_does_not_arrive(worlds: Get) -> None:
    with pytest.raises(RankRaised, match="rank 1 raised LookupError: it went off") as caught:
        worlds(2).run(programs.returns_a_bomb)
    assert isinstance(caught.value.exceptions[1], LookupError)
    assert_every_rank_is_named(caught.value, 2)
    assert_whole(worlds(2))


def test_a_result_that_is_never_unpacked() -> None:
    world = ProcessWorld(2)
    shortly(world, 2)
    with pytest.raises(TimedOut, match="the results were not unpacked after 2 s") as caught:
        world.run(unruly.never_tells, "result")
    assert_every_rank_is_named(caught.value, 2)
    world.timeout = 60
    assert_whole(world)
    world.close()


def test_an_exception_that_is_never_unpacked() -> None:
    world = ProcessWorld(2, timeout=60)
    with pytest.raises(RankRaised, match="rank 1 raised ValueError: it is too much") as caught:
        world.run(unruly.raises_what_never_arrives)
    assert type(caught.value.exceptions[1]) is ForeignError
    assert_whole(world)
    world.close()


def test_an_exception_that_is_no_exception_passes_through(worlds: Get) -> None:
    with pytest.raises(programs.Stop, match="no such thing"):
        worlds(3).run(programs.stops)
    assert_whole(worlds(3))


def test_a_result_that_cannot_travel(worlds: Get) -> None:
    with pytest.raises(RankRaised) as caught:
        worlds(2).run(programs.unpicklable)
    assert list(caught.value.exceptions) == [1]
    assert_whole(worlds(2))


def test_an_argument_that_does_not_arrive(worlds: Get) -> None:
    with pytest.raises(RankRaised, match="rank 0 raised LookupError: it went off") as caught:
        worlds(2).run(programs.echo, programs.Bomb())
    assert list(caught.value.exceptions) == [0, 1]
    assert_whole(worlds(2))


def test_a_program_of_the_main_script(worlds: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.my_rank, "__module__", "__main__")
    with pytest.raises(TypeError, match="move it to a module"):
        worlds(2).run(programs.my_rank)


@pytest.mark.parametrize(("how", "text"), [("exit", "3"), ("message", "")])
def test_sys_exit(worlds: Get, how: str, text: str) -> None:
    error = failing(worlds(4), how, (1,))
    assert type(error) is RankDied
    assert error.reports[1].status is Status.DIED
    assert f"exited with {text}" in error.reports[1].summary or text in str(error)
    assert "enough" in str(error) or how == "exit"
    assert not error.exceptions


def test_an_exit_code_that_is_no_exit_status(processes: Get) -> None:
    error = failing(processes(2), "huge", (1,))
    # As Python has it.
    assert error.reports[1].summary == "exited with status 255"


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("_exit", "exited with status 4"),
        ("segfault", "was ended by SIGSEGV"),
        ("abort", "was ended by SIGABRT"),
        ("kill", "was ended by SIGKILL"),
        ("real-time signal", "was ended by signal 40"),
    ],
)
@pytest.mark.parametrize("who", [(0,), (1, 2), WORLD])
@pytest.mark.parametrize("collective", [True, False])
def test_dying(processes: Get, how: str, text: str, who: tuple[int, ...], collective: bool) -> None:
    error = failing(processes(4), how, who, collective=collective)
    assert type(error) is RankDied
    assert not error.exceptions
    dead = [report.rank for report in error.reports if report.status is Status.DIED]
    assert set(dead) <= set(who)
    assert dead
    assert all(text in error.reports[rank].summary for rank in dead)
    if how == "segfault":
        assert "string_at" in error.reports[dead[0]].details


@pytest.mark.parametrize("how", ["_exit", "kill", "raise"])
def test_a_child_of_a_failed_rank(processes: Get, how: str, tmp_path: Path) -> None:
    """It hides no death, though it holds the rank's pipes, and ends."""
    with pytest.raises(RankRaised if how == "raise" else RankDied) as caught:
        processes(3).run(programs.leaves_a_child, how, str(tmp_path / "child"))
    assert_every_rank_is_named(caught.value, 3)
    assert_gone([int((tmp_path / "child").read_text())])
    assert_whole(processes(3))


@pytest.mark.parametrize("how", ["close", "_exit", "raise"])
def test_what_ranks_have_started_ends_with_them(how: str) -> None:
    world = ProcessWorld(3, timeout=30)
    shared = world.run(programs.shares_memory)
    started = world.run(programs.starts_a_program, session=True)
    if how == "close":
        world.close()
    else:
        failing(world, how, (1,))
    assert_gone(started)
    assert not [name for name in shared if (Path("/dev/shm") / name).exists()]
    world.close()


def test_a_rank_that_ends_after_its_answer(processes: Get) -> None:
    with pytest.raises(RankDied, match="rank 1 exited with status 6"):
        processes(2).run(programs.ends_after_its_answer)
    assert_whole(processes(2))


@pytest.mark.parametrize("what", ["answers before", "answers in vain"])
def test_a_rank_that_answers_with_what_is_no_answer(processes: Get, what: str) -> None:
    with pytest.raises(RankRaised, match="rank 1 raised RuntimeError: something was written"):
        processes(3).run(programs.meddles, what)
    assert_whole(processes(3))


def test_what_comes_after_an_answer_is_not_for_the_next_call(
    processes: Get, capfd: pytest.CaptureFixture[str]
) -> None:
    world: Any = processes(3)
    assert world.run(programs.meddles, "answers after") == ["through"] * 3
    assert readable(world._team._processes[1].answers.fd, 60)
    assert_whole(world)
    assert "[rank 1] something was written" in capfd.readouterr().out


@pytest.mark.parametrize("what", ["{}", "[1]", "[" * 100_000, "nonsense"])
def test_whereabouts_that_are_none(processes: Get, what: str) -> None:
    for _ in range(2):
        assert processes(3).run(programs.meddles, what) == ["through"] * 3
    assert_whole(processes(3))


@pytest.mark.parametrize("what", ["calls", "output"])
def test_a_rank_that_cannot_be_called_again(processes: Get, what: str) -> None:
    with pytest.raises(RankDied, match="or replaced file descriptors that it did not open"):
        processes(3).run(programs.meddles, what)
    assert_whole(processes(3))


def test_never_entered(worlds: Get) -> None:
    error = failing(worlds(4), "return", (2,))
    assert type(error) is Deadlock
    assert str(error).startswith("deadlock")
    assert error.reports[2].summary == "returned"
    for rank in (0, 1, 3):
        assert error.reports[rank].status is Status.WAITING
        assert "all_reduce over ranks (0, 1, 2, 3) of float32 (2, 3)" in error.reports[rank].summary


def test_crossed_groups(worlds: Get) -> None:
    with pytest.raises(Deadlock) as caught:
        worlds(3).run(programs.crossed)
    assert_every_rank_is_named(caught.value, 3)
    assert "barrier over ranks (0, 1)," in caught.value.reports[0].summary
    assert "barrier over ranks (0, 1, 2)," in caught.value.reports[1].summary
    assert_whole(worlds(3))


def test_groups_that_a_rank_does_not_make(worlds: Get) -> None:
    with pytest.raises(Deadlock) as caught:
        worlds(4).run(programs.lonely_group)
    assert_every_rank_is_named(caught.value, 4)
    assert "new_group" in caught.value.reports[0].summary
    assert_whole(worlds(4))


def test_a_wait_for_work_that_never_ends(processes: Get) -> None:
    with pytest.raises(Deadlock) as caught:
        processes(3).run(programs.waits_for_work)
    assert "wait()" in caught.value.reports[2].summary
    assert_whole(processes(3))


def test_mismatched_collectives(worlds: Get) -> None:
    with pytest.raises(WorldError) as caught:
        worlds(3).run(programs.mismatch)
    assert_every_rank_is_named(caught.value, 3)
    assert "all_reduce" in str(caught.value)
    assert_whole(worlds(3))


def test_mismatched_collectives_are_named(simulated: Get) -> None:
    with pytest.raises(CollectiveMismatch) as caught:
        simulated(3).run(programs.mismatch)
    assert "barrier over ranks (0, 1, 2)," in caught.value.reports[0].summary
    assert "all_reduce over ranks (0, 1, 2) of float32 (4, 4)" in caught.value.reports[1].summary


@pytest.mark.parametrize("what", ["dtype", "shape", "kind", "groups"])
def test_mismatched_collectives_that_a_backend_carries(worlds: Get, what: str) -> None:
    with pytest.raises(CollectiveMismatch, match=r"the members of group \(0, 1, 2\)") as caught:
        worlds(3).run(programs.mismatch_that_gloo_carries, what)
    assert_every_rank_is_named(caught.value, 3)
    first, second, _ = (report.summary for report in caught.value.reports)
    assert "over ranks (0, 1, 2)" in first
    assert first != second
    assert_whole(worlds(3))


@pytest.mark.parametrize("how", ["all_reduce", "all_gather"])
def test_a_collective_that_does_not_block(worlds: Get, how: str) -> None:
    with pytest.raises(Deadlock, match="deadlock") as caught:
        worlds(3).run(programs.enters_alone, how)
    assert_every_rank_is_named(caught.value, 3)
    assert f"{how} over ranks (0, 1, 2) of float32 (0,)" in caught.value.reports[0].summary
    assert_whole(worlds(3))


def test_a_collective_that_nobody_waits_for(processes: Get) -> None:
    with pytest.raises(Deadlock, match=r"deadlock: .*group \(0, 1, 2\)") as caught:
        processes(3).run(programs.enters_alone, "async")
    assert_every_rank_is_named(caught.value, 3)
    counts = [int(report.summary.split()[3]) for report in caught.value.reports]
    assert counts[0] - 1 == counts[1] == counts[2]
    assert_whole(processes(3))


def test_messages_between_two_ranks_are_no_collectives(processes: Get) -> None:
    team = processes(3)
    pids = team.pids  # type: ignore[attr-defined]
    assert team.run(programs.point_to_point) == [[0] * 3, [1] * 3, [0] * 3]
    assert_whole(team)
    assert pids == team.pids  # type: ignore[attr-defined]


def test_ranks_are_asked_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ProcessWorld(3)
    shortly(world, 1)
    done: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        method = getattr(RankHandle, name)

        def note(self: RankHandle, *args: Any) -> Any:
            done.append(name)
            return method(self, *args)

        return note

    with monkeypatch.context() as patch:
        for name in ("ask", "take_answer", "begin_dump", "printed_since"):
            patch.setattr(RankHandle, name, noted(name))
        with pytest.raises(TimedOut) as caught:
            world.run(programs.fail, "native loop", (1, 2))
    assert_every_rank_is_named(caught.value, 3)
    assert done[-8:] == (["ask"] * 3 + ["take_answer"] + ["begin_dump"] * 2 + ["printed_since"] * 2)
    world.close()


@pytest.mark.parametrize("who", [(1,), (0, 1, 2)])
def test_endless_loops(who: tuple[int, ...]) -> None:
    for world in (SimulatedWorld(3), ProcessWorld(3)):
        error = failing(shortly(world, 1), "loop", who)
        assert type(error) is TimedOut
        assert "not over after 1 s" in str(error)
        assert error.reports[1].status is Status.RUNNING
        assert "while True:" in str(error) or "in _fail" in error.reports[1].details
        world.close()


def test_an_endless_loop_that_holds_the_interpreter() -> None:
    world = ProcessWorld(2)
    error = failing(shortly(world, 1), "native loop", (1,))
    assert type(error) is TimedOut
    assert "in _fail" in error.reports[1].details
    world.close()


def test_a_program_that_swallows_every_exception_is_given_up() -> None:
    world = ProcessWorld(2)
    assert type(failing(shortly(world, 1), "swallow", (0,))) is TimedOut
    world.close()


def test_a_rank_that_prints_for_ever_fills_no_memory() -> None:
    world = ProcessWorld(2, timeout=3)
    world.run(programs.my_rank)
    output = f"/proc/{world.pids[1]}/fd/1"
    sizes: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            with suppress(OSError):
                sizes.append(os.stat(output).st_size)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(TimedOut):
            world.run(programs.prints_for_ever)
    finally:
        done.set()
        watcher.join()
    # What it prints between two looks comes on top.
    assert 1 << 20 < max(sizes) < 32 * OUTPUT_LIMIT_BYTES
    world.close()


def test_a_wait_for_a_child_is_no_deadlock(processes: Get) -> None:
    assert processes(2).run(programs.waits_for_a_child) == ["through"] * 2


@pytest.mark.parametrize("how", ["object", "timer", "thread", "child"])
def test_a_rank_that_goes_on_by_itself_is_no_deadlock(processes: Get, how: str) -> None:
    assert processes(3).run(programs.goes_on_by_itself, how) == ["through"] * 3


def test_an_answer_that_comes_too_late_is_no_deadlock(processes: Get) -> None:
    for _ in range(4):
        assert processes(2).run(programs.cannot_tell_then_is_slow) == ["through"] * 2


def test_an_alarm_at_the_end_of_a_call_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGALRM)
    setitimer = signal.setitimer

    def late(which: int, seconds: float, *interval: float) -> tuple[float, float]:
        if seconds == 0:
            signal.raise_signal(signal.SIGALRM)
        return setitimer(which, seconds, *interval)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "setitimer", late)
        assert SimulatedWorld(2).run(programs.my_rank) == [(0, 2), (1, 2)]
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("seconds", [0.3, 1.5])
def test_a_slow_rank_is_no_deadlock(processes: Get, seconds: float) -> None:
    assert processes(4).run(programs.slow, 2, seconds) == ["through"] * 4


def test_an_alarm_of_somebody_else_survives() -> None:
    def ring(signum: int, frame: object) -> None:
        raise RuntimeError("ring")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 100)
        SimulatedWorld(2).run(programs.my_rank)
        assert signal.getsignal(signal.SIGALRM) is ring
        assert 90 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_waiting_simulated_ranks_leave_their_with_blocks(simulated: Get, tmp_path: Path) -> None:
    with pytest.raises(RankRaised):
        simulated(3).run(programs.cleanup_needed, str(tmp_path / "left"))
    assert sorted((tmp_path / "left").read_text().split()) == ["0", "1", "2"]


find_failures = settings(
    max_examples=100,
    database=None,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


@pytest.mark.parametrize("who", [0, 3])
def test_hypothesis_shrinks_failures(worlds: Get, who: int) -> None:
    @find_failures
    @given(st.integers(0, 999))
    def find(value: int) -> None:
        worlds(4).run(programs.threshold, value, who)

    with pytest.raises(RankRaised, match=r"^rank . raised ValueError: 100 is too large"):
        find()


def test_hypothesis_tells_failures_apart(worlds: Get) -> None:
    @find_failures
    @given(st.sampled_from([1, 100, 1000]))
    def find(value: int) -> None:
        worlds(4).run(programs.threshold, value, 2)

    with pytest.raises(ExceptionGroup) as caught:
        find()
    messages = sorted(str(error.__cause__) for error in caught.value.exceptions)
    assert messages == ["100 is too large", "1000 is far too large"]


def test_a_killed_zygote_is_replaced() -> None:
    world, other = ProcessWorld(2), ProcessWorld(3)
    assert_whole(world)
    assert_whole(other)
    pid = zygote_for(("torch",)).pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(RankDied, match="the process that forks ranks was ended by") as caught:
        world.run(programs.my_rank)
    assert_every_rank_is_named(caught.value, 2)
    assert "ended with the process that forks ranks" in caught.value.reports[0].summary
    assert_whole(world)
    assert_whole(other)
    world.close()
    other.close()


def test_a_zygote_that_is_killed_while_ranks_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ProcessWorld(2)
    shortly(world, 1)
    pid = zygote_for(("torch",)).pid

    def killed_first(self: RankHandle) -> bool:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return not readable(self.pidfd, 60)

    with monkeypatch.context() as patch:
        patch.setattr(RankHandle, "ask", killed_first)
        with pytest.raises(TimedOut) as caught:
            world.run(programs.fail, "native loop", (0, 1))
    assert_every_rank_is_named(caught.value, 2)
    world.timeout = 30
    assert_whole(world)
    world.close()


def test_an_error_before_another_rank_dies(processes: Get) -> None:
    with pytest.raises(RankDied, match="rank 1 exited with status 4") as caught:
        processes(3).run(programs.raises_before_another_dies)
    assert_every_rank_is_named(caught.value, 3)
    assert isinstance(caught.value.exceptions[0], ValueError)
    assert caught.value.reports[0].status is Status.RAISED
    assert "lost a peer" in caught.value.reports[2].summary
    assert_whole(processes(3))


def test_a_world_outlives_the_thread_that_made_it() -> None:
    nursery.close_all()
    worlds: list[ProcessWorld] = []
    maker = threading.Thread(target=lambda: worlds.append(ProcessWorld(2, timeout=30)))
    maker.start()
    maker.join()
    (world,) = worlds
    assert_whole(world)
    assert_whole(world)
    world.close()


def test_a_caller_that_ignores_its_children() -> None:
    nursery.close_all()
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        world = ProcessWorld(2, timeout=30)
        with pytest.raises(RankDied, match="rank 1 exited with status 4"):
            world.run(programs.fail, "_exit", (1,))
        assert_whole(world)
        world.close()
        nursery.close_all()
    finally:
        signal.signal(signal.SIGCHLD, before)


class Ring(Exception):  # noqa: N818
    """What somebody's signal handler raises."""


@contextmanager
def rings_after(seconds: float) -> Iterator[None]:
    """Have a signal handler raise ``Ring`` in the context, once."""

    def ring(signum: int, frame: object) -> None:
        raise Ring

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_reply_of_the_zygote_that_nobody_waited_for_is_taken_for_no_other() -> None:
    world = ProcessWorld(2, timeout=30)
    assert_whole(world)
    pid = zygote_for(("torch",)).pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Ring), rings_after(0.5):
        world.run(programs.fail, "raise", (1,))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    for _ in range(3):
        failing(world, "kill", (0,))
    world.close()


def test_a_zygote_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ProcessWorld(2, timeout=30)
    assert_whole(world)
    monkeypatch.setattr(nursery, "_REPLY_SECONDS", 1.0)
    os.kill(zygote_for(("torch",)).pid, signal.SIGSTOP)
    with pytest.raises(RankRaised), rings_after(20):
        world.run(programs.fail, "raise", (1,))
    assert_whole(world)
    world.close()


def test_an_import_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nursery, "_IMPORT_SECONDS", 0.05)
    with pytest.raises(CannotStart, match="ended before it was ready"):
        ProcessWorld(2, ("torch", "fixtures.model.layout"))


def test_an_import_that_ends_in_no_rank() -> None:
    world = ProcessWorld(2)
    shortly(world, 1)
    with pytest.raises(TimedOut):
        world.run(hangs_in_ranks.my_rank)
    world.timeout = 60
    assert_whole(world)
    world.close()


def test_a_module_is_imported_by_the_ranks_after_a_failure_too() -> None:
    world = ProcessWorld(2, timeout=60)
    for _ in range(2):
        with pytest.raises(RankRaised, match="it is too much"):
            world.run(asks_while_imported.fails)
        assert world.run(asks_while_imported.answers) == [(0, 0), (1, 1)]
    world.close()


@pytest.mark.parametrize("who", [0, None])
def test_the_default_process_group_is_the_worlds(processes: Get, who: int | None) -> None:
    with pytest.raises(RankRaised, match="leave out destroy_process_group"):
        processes(2).run(programs.destroys_the_process_group, who)
    assert_whole(processes(2))


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    zygote = zygote_for(("torch",))
    pids: list[int] = []
    fork = Zygote.fork

    def fork_one(self: Zygote, *args: Any, **settings: Any) -> int:
        if pids:
            raise Ring
        pids.append(fork(self, *args, **settings))
        return pids[0]

    before = open_files()
    monkeypatch.setattr(Zygote, "fork", fork_one)
    with pytest.raises(Ring):
        ProcessWorld(3)
    assert open_files() == before
    zygote.kill([], wait=True)
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_failure_is_told_though_no_new_ranks_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ProcessWorld(2, timeout=30)
    assert_whole(world)
    before = open_files()
    socketpair, left = socket.socketpair, [1]

    def one_pair(*args: Any) -> Any:
        if not left:
            raise OSError(errno.EMFILE, "Too many open files")
        left.pop()
        return socketpair(*args)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", one_pair)
        with pytest.raises(RankRaised):
            world.run(programs.fail, "raise", (1,))
        with pytest.raises(OSError, match="Too many open files"):
            world.run(programs.my_rank)
    without = open_files()
    assert_whole(world)
    assert open_files() == before
    assert without < before
    world.close()


def test_a_module_that_cannot_be_imported() -> None:
    with pytest.raises(CannotStart, match=r"importing no_such_module .*failed") as caught:
        ProcessWorld(2, ("torch", "no_such_module"))
    # A verdict quotes the first line alone.
    assert "ModuleNotFoundError" in str(caught.value).splitlines()[0]
    with pytest.raises(CannotStart, match="ended before it was ready"):
        ProcessWorld(2, ("tests.worlds.ends_the_process",))


def test_gpus_must_be_as_many_as_ranks() -> None:
    with pytest.raises(ValueError, match="2 ranks need 2 GPUs"):
        ProcessWorld(2, gpus=["0"])


def test_a_world_is_of_the_process_that_made_it(processes: Get) -> None:
    world = processes(2)
    child = os.fork()
    if child == 0:
        try:
            world.run(programs.my_rank)
        except RuntimeError as error:
            world.close()
            os._exit(7 if "make one here" in str(error) else 1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert_whole(world)


def test_worlds_of_several_threads(processes: Get) -> None:
    def fails_again_and_again(size: int) -> None:
        world = ProcessWorld(size, timeout=30)
        for how in ("raise", "_exit", "kill") * 2:
            failing(world, how, (0,))
        world.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(fails_again_and_again, size) for size in (1, 2)]:
            done.result()


def test_zygotes_that_die_before_they_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    fork = Zygote.fork

    def dies(self: Zygote, *args: Any, **settings: Any) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return fork(self, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(Zygote, "fork", dies)
        with pytest.raises(CannotStart, match="the process that forks ranks was ended by SIGKILL"):
            ProcessWorld(2)
    world = ProcessWorld(2, timeout=30)
    assert_whole(world)
    world.close()


def test_ranks_for_which_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    before, ask = open_files(), Zygote._ask

    def ask_here(self: Zygote, request: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if request["do"] != "fork":
            return ask(self, request, *args, **kwargs)
        with monkeypatch.context() as patch, socket.socket() as control:
            patch.setattr(os, "fork", no_room)
            return Offspring(None).fork(control, [os.dup(0)])  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Zygote, "_ask", ask_here)
        with pytest.raises(CannotStart, match=r"no rank can be forked: .*temporarily unavailable"):
            ProcessWorld(2)
    assert open_files() == before


@pytest.mark.parametrize("make", [SimulatedWorld, ProcessWorld])
def test_a_caller_for_whom_time_stands_still(
    make: type[SimulatedWorld] | type[ProcessWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make(2, timeout=30)
    assert_whole(world)
    world.timeout = 0.5
    frozen = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: frozen)
        with pytest.raises(TimedOut):
            world.run(programs.fail, "loop", (1,))
    world.timeout = 30
    assert_whole(world)
    world.close()


def test_orphans_of_ranks_that_go_on_do_not_pile_up() -> None:
    world = ProcessWorld(2, timeout=30)
    world.run(programs.leaves_zombies)
    zygote = zygote_for(("torch",)).pid
    children = Path(f"/proc/{zygote}/task/{zygote}/children")
    deadline = time.monotonic() + 60
    while zombies := [pid for pid in map(int, children.read_text().split()) if not alive(pid)]:
        assert time.monotonic() < deadline, zombies
        time.sleep(0.1)
    assert_whole(world)
    world.close()


def test_a_close_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ProcessWorld(2, timeout=30)
    started = world.run(programs.starts_a_program, session=True)

    def interrupted(fd: int, seconds: float) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(nursery, "readable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.close()
    assert_gone(started)


def test_a_world_that_is_closed_while_its_zygote_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    world, other = ProcessWorld(2, timeout=30), ProcessWorld(1, timeout=30)
    assert_whole(world)
    closed: list[ProcessWorld] = []

    def closes_first(fd: int, seconds: float) -> bool:
        # As a handler of a signal would.
        if not closed:
            closed.append(other)
            other.close()
        return readable(fd, seconds)

    with monkeypatch.context() as patch:
        patch.setattr(nursery, "readable", closes_first)
        with pytest.raises(RankRaised):
            world.run(programs.fail, "raise", (1,))
    assert_whole(world)
    world.close()


def test_stacks_of_a_rank_that_has_handled_the_signal_for_them() -> None:
    world = ProcessWorld(2, timeout=30)
    world.run(programs.handles_the_signal_for_dumps)
    world.timeout = 1
    with pytest.raises(TimedOut) as caught:
        world.run(programs.fail, "native loop", (1,))
    assert "most recent call first" in caught.value.reports[1].details
    world.close()


def test_what_a_module_has_started_serves_until_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"starts_a_helper_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "import pathlib, subprocess\n"
        f"helper = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL)\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(helper.pid))\n"
    )
    (tmp_path / f"{name}_in_vain.py").write_text(
        f"import {name}\nraise ImportError('it has begun')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    preload = ("torch", name)
    world = ProcessWorld(2, preload, timeout=30)
    failing(world, "raise", (0,))
    failing(world, "kill", (0,))
    time.sleep(1)
    helper = int((tmp_path / "pid").read_text())
    assert alive(helper)
    world.close()
    zygote_for(preload).close()
    assert_gone([helper])
    with pytest.raises(CannotStart, match="it has begun"):
        ProcessWorld(2, ("torch", f"{name}_in_vain"))
    assert_gone([int((tmp_path / "pid").read_text())])

"""What is told of ranks that raise, die, loop or wait for ever; and that the next call is whole."""

import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fixtures.ranks.api import World
from fixtures.ranks.errors import (
    CollectiveMismatch,
    Deadlock,
    ForeignError,
    RankDied,
    RankRaised,
    Status,
    TimedOut,
    WorldError,
)
from fixtures.ranks.simulated import SimulatedWorld
from tests.ranks import programs
from tests.ranks.conftest import Get
from tests.ranks.test_cleanup import assert_gone

BOTH = ("simulated", "forked")
# For a time-out to pass. What ranks reach in it, on a busy machine, is not asserted.
_SHORT = 1.0


class Failure(NamedTuple):
    """How rank 1 of three fails, while the others enter an all_reduce; and what is told of it.

    Attributes:
        how: As ``programs.fail`` has it.
        ranks: Kinds that it is tried on.
        error: What is raised.
        headline: Pattern of its first line.
        report: Pattern of the summary of rank 1.
        details: Pattern of its details.
    """

    how: str
    ranks: tuple[str, ...]
    error: type[WorldError]
    headline: str
    report: str
    details: str = ""


WILL_NOT = "raised ValueError: rank 1 will not"
OTHER = r"the members of group \(0, 1, 2\) entered different collectives"
OVER = "the call was not over after 1 s"
STUCK = "deadlock: no rank can go on"

FORKED = ("forked",)
SIMULATED = ("simulated",)
FAILURES = [
    Failure("raise", BOTH, RankRaised, f"rank 1 {WILL_NOT}", WILL_NOT, "raise ValueError"),
    Failure("raise in a chain", BOTH, RankRaised, "rank 1 raised KeyError", "", "direct cause"),
    Failure("raise what cannot be pickled", BOTH, RankRaised, "rank 1 raised Odd: 1 and 2", ""),
    Failure("recurse for ever", BOTH, RankRaised, "rank 1 raised RecursionError", "raised"),
    Failure("return what cannot be pickled", BOTH, RankRaised, "rank 1 raised .*pickle", "raised"),
    Failure("exit", SIMULATED, RankDied, "rank 1 exited with 3", "exited", "SystemExit: 3"),
    Failure("exit", FORKED, RankDied, "rank 1 exited with status 3", "exited"),
    Failure("exit with words", SIMULATED, RankDied, "rank 1 exited with 'it is", "exited"),
    Failure("exit with words", FORKED, RankDied, "rank 1 exited with status 1", "exited", "it is"),
    Failure("exit at once", FORKED, RankDied, "rank 1 exited with status 4", "exited"),
    Failure("be killed", FORKED, RankDied, "rank 1 was ended by SIGKILL", "memory runs out"),
    Failure("crash", FORKED, RankDied, "rank 1 was ended by SIGSEGV", "ended", "in string_at"),
    Failure("abort", FORKED, RankDied, "rank 1 was ended by SIGABRT", "ended", "in _fail"),
    Failure("be killed, leaving a child", FORKED, RankDied, "rank 1 was", "SIGKILL", "child"),
    Failure("return", BOTH, Deadlock, STUCK, "returned$"),
    Failure("make other groups", SIMULATED, CollectiveMismatch, OTHER, "new_group"),
    Failure("enter another collective", BOTH, WorldError, "", "reduce_scatter|raised"),
    Failure("enter with another shape", BOTH, CollectiveMismatch, OTHER, r"float32 \(3, 2\)"),
    Failure("enter with another dtype", BOTH, CollectiveMismatch, OTHER, "int32"),
    Failure("enter two", BOTH, Deadlock, "deadlock", r"all_reduce over .* of float32 \(0,\)"),
    Failure("sleep", BOTH, TimedOut, OVER, "was running", "time.sleep"),
    Failure("loop", BOTH, TimedOut, OVER, "was running", "in _fail"),
    Failure("loop in C", BOTH, TimedOut, OVER, "was running", "in _fail"),
    Failure("loop in C, deaf", FORKED, TimedOut, OVER, "was running", "in _fail"),
    Failure("loop over all exceptions", BOTH, TimedOut, OVER, "was running", "in _fail"),
    Failure("loop over whatever is raised", FORKED, TimedOut, OVER, "was running", "in _fail"),
    Failure("print for ever", FORKED, TimedOut, OVER, "was running"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        pytest.param(failure, kind, id=f"{failure.how}-{kind}")
        for failure in FAILURES
        for kind in failure.ranks
    ],
)
def test_failure(failure: Failure, kind: str, request: pytest.FixtureRequest) -> None:
    world = request.getfixturevalue(kind)(3)
    error = failing(world, failure.how, timed_out=failure.error is TimedOut)
    assert isinstance(error, failure.error), error
    assert re.match(failure.headline, str(error)), error
    assert re.search(failure.report, error.reports[1].summary), error
    assert re.search(failure.details, error.reports[1].details), error
    # That its death raises something in the others is told, but they have not failed.
    assert list(error.exceptions) == ([1] if failure.error is RankRaised else []), error
    if failure.error in (RankRaised, Deadlock) and failure.how in ("raise", "return"):
        for report in error.reports[::2]:
            assert report.status is Status.WAITING
            assert "all_reduce over ranks (0, 1, 2) of float32 (2, 3)" in report.summary
            assert re.search(r"programs\.py:\d+ in fail$", report.summary)
            assert "group.all_reduce(torch.ones(2, 3))" in report.details
    if child := re.search(r"child (\d+)", error.reports[1].details):
        assert_gone([int(child[1])])


def failing(world: Any, how: str, *, timed_out: bool = False, **kwargs: Any) -> WorldError:
    """The error of a call, every rank of which it names, and after which the next one is whole."""
    assert_whole(world)
    usual, world.timeout = world.timeout, _SHORT if timed_out else world.timeout
    try:
        with pytest.raises(WorldError) as caught:
            world.run(programs.fail, how, **kwargs)
    finally:
        world.timeout = usual
    assert_every_rank_is_named(caught.value, world.size)
    assert_whole(world)
    return caught.value


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


def test_a_simulated_rank_that_does_not_come_back_from_c_ends_its_process(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from fixtures.ranks.simulated import SimulatedWorld\n"
        "from tests.ranks import programs\n\n"
        "def test_it():\n"
        "    SimulatedWorld(2, timeout=1).run(programs.fail, 'loop in C, deaf')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path), "-c", os.devnull,
         "-o", "faulthandler_timeout=3", "-o", "faulthandler_exit_on_timeout=true"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"programs\.py\", line \d+ in _fail", done.stderr), done.stderr


@pytest.mark.parametrize("who", [(0,), (1, 3), (0, 1, 2, 3)])
def test_all_that_was_raised_is_kept(worlds: Get, who: tuple[int, ...]) -> None:
    error = failing(worlds(4), "raise", who=who)
    assert {rank: type(one) for rank, one in error.exceptions.items()} == dict.fromkeys(
        who, ValueError
    )
    assert error.__cause__ is error.__context__ is error.exceptions[who[0]]


def test_an_exception_brings_its_place_along(worlds: Get) -> None:
    error = failing(worlds(2), "raise in a chain")
    assert isinstance(error.__cause__, KeyError)
    assert isinstance(error.__cause__.__cause__, ValueError)
    for one in (error.__cause__, error.__cause__.__cause__):
        last = traceback.extract_tb(one.__traceback__)[-1]
        assert Path(last.filename).name == "programs.py"
        assert "raise" in (last.line or "")


def test_an_exception_that_cannot_be_pickled_is_described(forked: Get) -> None:
    error = failing(forked(2), "raise what cannot be pickled").exceptions[1]
    assert isinstance(error, ForeignError)
    assert str(error) == "tests.ranks.programs.Odd: 1 and 2"


@pytest.mark.parametrize(
    ("how", "kind"), [("skip", pytest.skip.Exception), ("stop", programs.Stop)]
)
def test_what_is_no_exception_passes_through(
    worlds: Get, how: str, kind: type[BaseException]
) -> None:
    with pytest.raises(kind):
        worlds(3).run(programs.fail, how)
    assert_whole(worlds(3))


def test_crossed_groups(worlds: Get) -> None:
    with pytest.raises(Deadlock, match=STUCK) as caught:
        worlds(3).run(programs.crossed)
    assert "barrier over ranks (0, 1)," in caught.value.reports[0].summary
    assert "barrier over ranks (0, 1, 2)," in caught.value.reports[1].summary
    assert_whole(worlds(3))


def test_groups_that_a_rank_does_not_make(worlds: Get) -> None:
    with pytest.raises(Deadlock, match=STUCK) as caught:
        worlds(4).run(programs.lonely_group)
    assert "new_group" in str(caught.value)
    assert_whole(worlds(4))


@pytest.mark.parametrize("how", ["sleeps", "waits for a child", "holds the interpreter"])
@pytest.mark.parametrize("seconds", [0.2, 1.2])
def test_a_slow_rank_is_no_deadlock(forked: Get, how: str, seconds: float) -> None:
    assert forked(3).run(programs.slow, how, seconds) == ["through"] * 3


def test_waiting_simulated_ranks_leave_their_with_blocks(simulated: Get, tmp_path: Path) -> None:
    with pytest.raises(RankRaised):
        simulated(3).run(programs.leave_with_blocks, str(tmp_path / "left"))
    assert sorted((tmp_path / "left").read_text().split()) == ["0", "1", "2"]


@pytest.mark.parametrize("where", ["operator", "mode", "backward"])
def test_a_collective_inside_c_is_refused(where: str, forked: Get) -> None:
    assert forked(3).run(programs.sums, where) == [[6.0]] * 3
    world = SimulatedWorld(3)
    with pytest.raises(RankRaised, match=r"all_reduce inside what torch runs from C\+\+"):
        world.run(programs.sums, where)
    assert_whole(world)


def test_a_group_is_for_the_rank_that_made_it(simulated: Get) -> None:
    with pytest.raises(RankRaised, match=r"keep groups in rank\.state"):
        simulated(3).run(programs.meets_in_a_shared_group)
    assert_whole(simulated(3))


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
    """Of one type, by the line that raised them."""

    @find_failures
    @given(st.sampled_from([1, 100, 1000]))
    def find(value: int) -> None:
        worlds(4).run(programs.threshold, value, 2)

    with pytest.raises(ExceptionGroup) as caught:
        find()
    messages = sorted(str(error.__cause__) for error in caught.value.exceptions)
    assert messages == ["100 is too large", "1000 is far too large"]

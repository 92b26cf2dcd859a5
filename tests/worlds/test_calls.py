"""What both kinds of worlds do when all goes well."""

import importlib
import io
import signal
import sys
from pathlib import Path

import pytest
import torch

from fixtures.model.layout import Layout, Partition
from fixtures.worlds.api import Collective, Rank, World
from fixtures.worlds.errors import RankRaised
from fixtures.worlds.pool import Worlds
from fixtures.worlds.processes import ProcessWorld
from fixtures.worlds.simulated import SimulatedWorld
from tests.worlds import programs, unruly
from tests.worlds.conftest import Get

HALVES: Partition = ((0, 1), (2, 3))
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_results_come_in_rank_order(worlds: Get, size: int) -> None:
    assert worlds(size).run(programs.my_rank) == [(rank, size) for rank in range(size)]


def test_arguments_are_copies(worlds: Get) -> None:
    given = torch.zeros(2)
    results = worlds(4).run(programs.spoil, given)
    assert torch.equal(given, torch.zeros(2))
    assert [result[0].item() for result in results] == [0, 1, 2, 3]


def test_results_are_copies(worlds: Get) -> None:
    first = worlds(2).run(programs.kept_buffer, 1.0)
    worlds(2).run(programs.kept_buffer, 2.0)
    assert [result.tolist() for result in first] == [[1.0, 1.0]] * 2


def test_large_arguments_and_results(worlds: Get) -> None:
    large = torch.arange(1_000_000.0)
    results = worlds(4).run(programs.echo, large)
    assert all(torch.equal(result, large) for result in results)


@pytest.mark.parametrize("partition", [((0, 1, 2, 3),), HALVES, ((0, 2), (1,), (3,))])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_collectives(worlds: Get, partition: Partition, dtype: torch.dtype) -> None:
    check_collectives(worlds(4), partition, dtype)


def check_collectives(world: World, partition: Partition, dtype: torch.dtype) -> None:
    results = world.run(programs.all_collectives, partition, dtype)
    for group in partition:
        n = len(group)
        base = torch.arange(6 * n).view(3 * n, 2) % 5
        inputs = [(base + rank).to(dtype).double() for rank in group]
        total = torch.stack(inputs).sum(0)
        for index, rank in enumerate(group):
            got = results[rank]
            assert torch.equal(got["all_gather"], torch.cat(inputs))
            assert torch.equal(got["stacked"], torch.stack(inputs))
            assert torch.equal(got["scalars"], torch.stack([i[0, 0] for i in inputs]))
            rows = slice(3 * index, 3 * index + 3)
            assert torch.equal(got["all_to_all"], torch.cat([i[rows] for i in inputs]))
            if dtype.itemsize > 1:
                assert torch.equal(got["all_reduce"], total)
                assert torch.equal(got["reduce_scatter"], total[rows])


@pytest.mark.parametrize(
    "case", ["gather", "dtype", "device", "strided", "scatter", "all_to_all", "float8"]
)
def test_tensors_that_do_not_fit_are_refused(worlds: Get, case: str) -> None:
    with pytest.raises(RankRaised) as caught:
        worlds(2).run(programs.wrong_shape, case)
    assert {type(error) for error in caught.value.exceptions.values()} == {ValueError}
    assert "must be" in str(caught.value) or "convert" in str(caught.value)
    if case == "device":
        assert list(caught.value.exceptions) == [1]


def test_groups(worlds: Get) -> None:
    assert worlds(4).run(programs.group_identity, HALVES) == [True] * 4
    expected = [((0, 1), 0, 2), ((0, 1), 1, 2), ((2, 3), 0, 2), ((2, 3), 1, 2)]
    assert worlds(4).run(programs.group_of, HALVES) == expected


@pytest.mark.parametrize("partition", [((0, 1), (2,)), ((0, 1), (1, 2, 3)), ((1, 0), (2, 3))])
def test_what_is_no_partition_is_refused(worlds: Get, partition: Partition) -> None:
    with pytest.raises(RankRaised, match=r"partition .* must") as caught:
        worlds(4).run(programs.group_of, partition)
    assert list(caught.value.exceptions) == [0, 1, 2, 3]


def test_the_ledger_sees_what_is_issued_inside(worlds: Get) -> None:
    for rank, (outer, inner) in enumerate(worlds(4).run(programs.recorded, HALVES)):
        group = HALVES[rank // 2]
        last = Collective("all_reduce", (0, 1, 2, 3), (2, 3), "torch.float32")
        assert inner == [last]
        assert outer == [
            Collective("all_gather", group, (6, 2), "torch.float32"),
            Collective("all_gather", group, (6, 2), "torch.float32"),
            Collective("all_gather", group, (1,), "torch.float32"),
            Collective("all_to_all", group, (6, 2), "torch.float32"),
            Collective("reduce_scatter", group, (6, 2), "torch.float32"),
            Collective("all_reduce", group, (6, 2), "torch.float32"),
            Collective("barrier", group, (), ""),
            last,
        ]


def test_the_ledger_sees_collectives_of_foreign_code(processes: Get) -> None:
    everyone = (0, 1, 2)
    for ledger in processes(3).run(programs.recorded_foreign):
        assert ledger == [
            Collective("all_reduce", everyone, (2, 3), "torch.float32"),
            Collective("all_gather", everyone, (2, 3), "torch.float32"),
            Collective("broadcast", everyone, (2, 3), "torch.float32"),
            Collective("all_to_all", everyone, (3,), "torch.float32"),
            Collective("all_reduce", everyone, (2, 3), "torch.float16"),
            Collective("barrier", everyone, (), ""),
        ]


def test_state_and_context_variables_are_each_ranks_own(worlds: Get) -> None:
    world = worlds(3)
    with pytest.raises(RankRaised):  # Starts from scratch.
        world.run(programs.fail, "raise", (0,))
    assert world.run(programs.count) == [(1, 1), (2, 2), (3, 3)]
    assert world.run(programs.count) == [(2, 2), (4, 4), (6, 6)]
    with pytest.raises(RankRaised):
        world.run(programs.fail, "raise", (0,))
    assert world.run(programs.count) == [(1, 1), (2, 2), (3, 3)]


def test_torchs_settings_are_each_ranks_own(worlds: Get) -> None:
    plain = (True, True, False, "cpu", torch.float32, 0, False, False)
    inside = [
        (False, True, False, "cpu", torch.float32, 1, False, False),
        (False, False, True, "cpu", torch.float32, 0, False, False),
        (True, True, False, "meta", torch.float32, 0, True, False),
        (True, False, False, "cpu", torch.float64, 0, False, True),
    ]
    assert worlds(4).run(programs.ambient) == [[plain, one, plain] for one in inside]


def test_coroutines_are_each_ranks_own(worlds: Get) -> None:
    assert worlds(3).run(programs.enters_from_a_coroutine) == [0, 1, 2]


def test_simulated_ranks_start_with_the_callers_settings(simulated: Get) -> None:
    with torch.no_grad():
        results = simulated(4).run(programs.ambient)
        assert not torch.is_grad_enabled()
    assert [(first[0], last[0]) for first, _, last in results] == [(False, False)] * 4


def test_settings_that_a_simulated_rank_leaves_are_nobody_elses(simulated: Get) -> None:
    plain = (torch.get_default_dtype(), True)
    assert simulated(3).run(programs.leaves_settings, fails=False) == [plain] * 3
    with pytest.raises(RankRaised):
        simulated(3).run(programs.leaves_settings, fails=True)
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == plain


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "what",
    ["device", "mode", "inference", "autocast", "output", "mask", "handler", "timer", "alarm"],
)
def test_what_a_program_changes_is_put_back(worlds: Get, what: str, fails: bool) -> None:
    world = worlds(2)
    before, mine = world.run(unruly.settings), unruly.settings(None)
    if fails:
        with pytest.raises(RankRaised):
            world.run(unruly.changes, what, fails=True)
    else:
        world.run(unruly.changes, what, fails=False)
    assert world.run(unruly.settings) == before
    assert unruly.settings(None) == mine


def test_reductions_add_up_in_rank_order(simulated: Get) -> None:
    # 256 + 1 is 256 in bfloat16, so that the order shows.
    [total, *_] = simulated(3).run(reduce_one, [1.0, 256.0, 1.0])
    one = torch.tensor([1.0], dtype=torch.bfloat16)
    assert torch.equal(total, (one + 256) + one)


def reduce_one(rank: Rank, values: list[float]) -> torch.Tensor:
    tensor = torch.tensor([values[rank.rank]], dtype=torch.bfloat16)
    programs.everyone(rank).all_reduce(tensor)
    return tensor


@pytest.mark.parametrize("dcp", [8, 64, 128])
def test_large_layouts(simulated: Get, dcp: int) -> None:
    layout = Layout(tp=128, dcp=dcp)
    results = simulated(128).run(programs.group_of, layout.dcp_groups)
    assert [ranks for ranks, _, _ in results] == [layout.dcp_group_of(r) for r in range(128)]


def test_output_of_ranks_is_printed_by_the_caller(
    processes: Get, capsys: pytest.CaptureFixture[str]
) -> None:
    processes(2).run(programs.talk)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == [
        "[rank 0] and a warning",
        "[rank 0] hello from 0",
        "[rank 1] and a warning",
        "[rank 1] hello from 1",
    ]


def test_output_that_the_caller_cannot_print(
    processes: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii", line_buffering=True))
    processes(1).run(programs.prints_bytes, b"caf\xc3\xa9 \xff")
    assert written.getvalue() == b"[rank 0] caf\\xe9 \\ufffd\n"


def test_a_module_of_a_directory_that_was_added_since(
    worlds: Get, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds(2).run(programs.my_rank)
    name = f"added_since_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text("def doubled(rank):\n    return 2 * rank.rank\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert worlds(2).run(importlib.import_module(name).doubled) == [0, 2]


def test_a_child_that_comes_back_from_a_program_answers_for_no_rank(worlds: Get) -> None:
    assert worlds(2).run(programs.returns_twice) == ["rank", "rank"]
    assert worlds(2).run(programs.my_rank) == [(0, 2), (1, 2)]


def test_what_a_rank_executes_inherits_nothing_of_the_world(processes: Get) -> None:
    assert processes(2).run(programs.inherited_by_programs) == [[], []]


def test_programs_must_be_module_level_functions(worlds: Get) -> None:
    with pytest.raises(TypeError, match="module-level"):
        worlds(2).run(lambda rank: None)
    with pytest.raises(TypeError, match="picklable"):
        worlds(2).run(programs.echo, lambda: None)
    assert worlds(2).run(programs.echo, 1) == [1, 1]


def test_a_child_of_a_rank_can_be_interrupted(processes: Get) -> None:
    assert processes(1).run(programs.interrupts_a_child) == [-signal.SIGINT]


def test_paths_that_python_passes_over(worlds: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("nowhere")])
    assert worlds(2).run(programs.echo, 1) == [1, 1]


@pytest.mark.parametrize("make", [SimulatedWorld, ProcessWorld])
def test_sizes_below_one_are_refused(make: type[SimulatedWorld] | type[ProcessWorld]) -> None:
    with pytest.raises(ValueError, match="size is 0"):
        make(0)


@pytest.mark.parametrize("make", [SimulatedWorld, ProcessWorld])
def test_a_closed_world_says_so(make: type[SimulatedWorld] | type[ProcessWorld]) -> None:
    world = make(2)
    world.close()
    world.close()
    with pytest.raises(RuntimeError, match="closed"):
        world.run(programs.my_rank)


def test_the_pool_keeps_worlds_and_closes_the_least_used() -> None:
    pool = Worlds(SimulatedWorld, most_ranks=6)
    two, three = pool.get(2), pool.get(3)
    assert pool.get(2) is two
    pool.get(4)
    assert pool.get(2) is two
    with pytest.raises(RuntimeError, match="closed"):
        three.run(programs.my_rank)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        two.run(programs.my_rank)


def test_worlds_that_are_not_in_use_rest() -> None:
    pool = Worlds(ProcessWorld)
    two = pool.get(2)
    two.run(programs.my_rank)
    assert isinstance(two, ProcessWorld)
    before = [state_of(pid) for pid in two.pids]
    pool.get(3).run(programs.my_rank)
    assert [state_of(pid) for pid in two.pids] == ["T", "T"]
    assert "T" not in before
    assert pool.get(2).run(programs.my_rank) == [(0, 2), (1, 2)]
    pool.get(3)
    with pytest.raises(RankRaised):
        two.run(programs.fail, "raise", (1,))
    assert pool.get(2).run(programs.my_rank) == [(0, 2), (1, 2)]
    pids = two.pids
    pool.get(3)
    pool.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

"""What both kinds of ranks do when all goes well."""

import io
import sys

import pytest
import torch

from fixtures.model.layout import Layout, Partition
from fixtures.ranks.api import Collective, World
from fixtures.ranks.errors import RankRaised
from fixtures.ranks.forked import ForkedWorld
from fixtures.ranks.pool import Worlds
from fixtures.ranks.simulated import SimulatedWorld
from tests.ranks import programs
from tests.ranks.conftest import Get

HALVES: Partition = ((0, 1), (2, 3))
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn]


@pytest.mark.parametrize("size", [1, 3, 4])
def test_results_come_in_rank_order(worlds: Get, size: int) -> None:
    assert worlds(size).run(programs.my_rank) == [(rank, size) for rank in range(size)]


def test_arguments_and_results_are_copies(worlds: Get) -> None:
    given = torch.zeros(2)
    results = worlds(4).run(programs.spoil, given)
    assert torch.equal(given, torch.zeros(2))
    assert [result[0].item() for result in results] == [0, 1, 2, 3]
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
    with pytest.raises(RankRaised, match=r"must be|convert") as caught:
        worlds(2).run(programs.wrong_shape, case)
    assert {type(error) for error in caught.value.exceptions.values()} == {ValueError}


def test_groups(worlds: Get) -> None:
    assert worlds(4).run(programs.group_of, HALVES) == [
        ((0, 1), 0, 2, True),
        ((0, 1), 1, 2, True),
        ((2, 3), 0, 2, True),
        ((2, 3), 1, 2, True),
    ]


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


def test_the_ledger_sees_collectives_of_foreign_code(forked: Get) -> None:
    everyone = (0, 1, 2)
    for ledger in forked(3).run(programs.recorded_foreign):
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
        world.run(programs.fail, "raise")
    assert world.run(programs.count) == [(1, 1), (2, 2), (3, 3)]
    assert world.run(programs.count) == [(2, 2), (4, 4), (6, 6)]


def test_torchs_settings_are_each_ranks_own(worlds: Get) -> None:
    plain = (True, "cpu", torch.float32, 0)
    results = worlds(4).run(programs.settings)
    # The recorder of one rank sees nothing of the others, nor of what the world computes.
    operators = results[0].pop(2)
    assert operators == (2 if worlds(4).kind == "simulated" else 3)
    assert results == [
        [plain, (False, "cpu", torch.float32, 1), plain],
        [plain, (False, "cpu", torch.float32, 0), plain],
        [plain, (True, "meta", torch.float32, 0), plain],
        [plain, (True, "cpu", torch.float64, 0), plain],
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_settings_that_a_simulated_rank_leaves_are_nobody_elses(
    simulated: Get, fails: bool
) -> None:
    with torch.no_grad():
        if fails:
            with pytest.raises(RankRaised):
                simulated(3).run(programs.leaves_settings, fails=True)
        else:
            results = simulated(3).run(programs.leaves_settings, fails=False)
            assert results == [(torch.float32, False)] * 3
        assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (torch.float32, False)


def test_reductions_add_up_in_rank_order(simulated: Get) -> None:
    # 256 + 1 is 256 in bfloat16, so that the order shows.
    [total, *_] = simulated(3).run(programs.reduce_one, [1.0, 256.0, 1.0])
    one = torch.tensor([1.0], dtype=torch.bfloat16)
    assert torch.equal(total, (one + 256) + one)


@pytest.mark.parametrize("dcp", [8, 64, 128])
def test_large_layouts(simulated: Get, dcp: int) -> None:
    layout = Layout(tp=128, dcp=dcp)
    results = simulated(128).run(programs.group_of, layout.dcp_groups)
    assert [ranks for ranks, *_ in results] == [layout.dcp_group_of(r) for r in range(128)]


def test_output_of_ranks_is_printed_by_the_caller(
    forked: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, "ascii", line_buffering=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        forked(2).run(programs.talk, b"caf\xc3\xa9 \xff\n")
    assert sorted(written.getvalue().splitlines()) == [
        b"[rank 0] caf\\xe9 \\ufffd",
        b"[rank 0] hello from 0",
        b"[rank 1] caf\\xe9 \\ufffd",
        b"[rank 1] hello from 1",
    ]


def test_of_much_output_the_end_is_printed(forked: Get, capsys: pytest.CaptureFixture[str]) -> None:
    assert forked(2).run(programs.print_much) == ["through"] * 2
    lines = capsys.readouterr().out.splitlines()
    assert 100 < len(lines) < 1000
    assert lines[-1].startswith("[rank 1] 9999: xxx")


def test_programs_must_be_module_level_functions(
    worlds: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TypeError, match="module-level"):
        worlds(2).run(lambda rank: None)
    with pytest.raises(TypeError, match="picklable"):
        worlds(2).run(programs.echo, lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(programs.my_rank, "__module__", "__main__")
        with pytest.raises(TypeError, match="move it to a module"):
            worlds(2).run(programs.my_rank)
    assert worlds(2).run(programs.echo, 1) == [1, 1]


@pytest.mark.parametrize("make", [SimulatedWorld, ForkedWorld])
def test_the_size_and_the_end(make: type[SimulatedWorld] | type[ForkedWorld]) -> None:
    with pytest.raises(ValueError, match="size is 0"):
        make(0)
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


def test_worlds_that_rest_can_be_called_and_closed() -> None:
    pool = Worlds(ForkedWorld)
    two = pool.get(2)
    pool.get(3)
    assert pool.get(2).run(programs.my_rank) == [(0, 2), (1, 2)]
    pool.get(3)
    with pytest.raises(RankRaised):
        two.run(programs.fail, "raise")
    assert two.run(programs.my_rank) == [(0, 2), (1, 2)]
    two.rest()
    pool.close()

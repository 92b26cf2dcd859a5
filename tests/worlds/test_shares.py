"""Examples are shared out completely, evenly, and no longer once one has failed."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.layout import Layout
from fixtures.worlds.shares import Share, shares

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_example_belongs_to_one_share(count: int) -> None:
    sizes = [0] * count
    for tp in range(1, 40):
        for seed in range(50):
            owners = [share.index for share in shares(count) if share.has(Layout(tp), seed)]
            assert len(owners) == 1
            sizes[owners[0]] += 1
    assert min(sizes) > 0.8 * sum(sizes) / count


def test_it_does_not_depend_on_the_process() -> None:
    script = """
        from fixtures.layout import Layout
        from fixtures.worlds.shares import Share
        print([Share(0, 2).has(Layout(4, 2), seed, "text") for seed in range(64)])
    """
    results = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert results == {f"{[Share(0, 2).has(Layout(4, 2), s, 'text') for s in range(64)]}\n"}


@pytest.mark.parametrize("share", shares(3), ids=repr)
def test_a_failure_shrinks_as_if_nothing_were_shared(share: Share) -> None:
    @settings(database=None, derandomize=True, max_examples=300)
    @given(st.integers(0, 10_000))
    def find(value: int) -> None:
        if share.has(value) and value >= 100:
            share.failed()
            raise ValueError(f"{value} is too large")

    with pytest.raises(ValueError, match=r"^100 is too large"):
        find()


def test_a_share_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="share 3 of 3"):
        Share(3, 3)

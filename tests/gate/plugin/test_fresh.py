"""A run on new examples says by which seed they are drawn, and that seed repeats them."""

from __future__ import annotations

import pytest

from gate.exit_codes import ExitCode
from tests.gate.plugin.conftest import Gate

DRAWS = """
from hypothesis import given, strategies as st
from properties.contract import clause

@clause("LIN-1")
@given(number=st.integers(0, 10**12))
def test_draws(number):
    with open("ran", "a") as file:
        print(number, file=file)
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_fresh_run_is_repeated_by_its_seed(gate: Gate, workers: tuple[str, ...]) -> None:
    gate.write("test_properties.py", DRAWS)

    def draw(*options: str) -> tuple[str, str]:
        run = gate.run(*workers, "--hypothesis-profile", "fresh", *options, ".")
        assert run.code == ExitCode.PASSED
        assert run.clause("LIN-1")["examples"] == 10
        seed: str = run.verdicts["settings"]["seed"]
        assert f"seed {seed}" in run.output
        ran = gate.folder / "ran"
        drawn = ran.read_text()
        ran.unlink()
        return seed, drawn

    seed, drawn = draw()
    other, others = draw()
    assert seed != other
    assert drawn != others
    assert draw("--hypothesis-seed", seed) == (seed, drawn)


def test_other_profiles_are_given_no_seed(gate: Gate) -> None:
    gate.write("test_properties.py", DRAWS)
    for profile, seed in (("dev", "random"), ("ci", "from each test")):
        run = gate.run("--hypothesis-profile", profile, ".")
        assert run.verdicts["settings"]["seed"] == seed

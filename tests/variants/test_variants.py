"""No clause forbids what these variants do, so every property of theirs passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# By name: imported here, it would be a subject of every other test of this process too.
VARIANT = "tests.variants.values_before_merge"
# Those of whole modules build impl's own layer, and are judged on impl.
OF_MODULES = ("module", "prefill_tokens_are_projected", "opcheck")


@pytest.mark.parametrize(
    "properties", ["test_dec.py", "test_mrg.py", "test_com.py", "test_mem.py", "test_serving.py"]
)
def test_values_projected_before_the_merge_are_right(properties: str) -> None:
    chosen = " and ".join(f"not {word}" for word in OF_MODULES)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", f"properties/{properties}", "-k", chosen),
            *("-p", VARIANT, "--subject", VARIANT.rpartition(".")[2]),
            *("--hypothesis-profile", "ci", "-q", "-p", "no:cacheprovider"),
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""A checkout is what is judged, and not the vLLM that is installed beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATCHED = Path("model_executor/layers/linear.py")
TEST = "local_view"


def _link_all_but(path: Path, source: Path, target: Path) -> None:
    """Make ``target`` a tree of links into ``source`` without the file at ``path``."""
    target.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name != path.parts[0]:
            (target / entry.name).symlink_to(entry)
    if len(path.parts) > 1:
        inner = path.parts[0]
        _link_all_but(path.relative_to(inner), source / inner, target / inner)


@pytest.mark.skipif(not any(metadata.distributions(name="vllm")), reason="vLLM is not installed")
def test_a_patch_in_a_checkout_is_what_the_verdict_is_on(tmp_path: Path) -> None:
    (installed,) = metadata.distributions(name="vllm")
    source = Path(str(installed.locate_file("vllm")))
    checkout = tmp_path / "my-vllm"
    _link_all_but(PATCHED, source, checkout / "vllm")
    text = (source / PATCHED).read_text("utf-8")
    view = text.index("def _local_view")
    mended = text[:view] + text[view:].replace(".contiguous()", ".clone()", 1)
    assert mended != text
    (checkout / "vllm" / PATCHED).write_text(mended, "utf-8")

    version = f"{installed.version}+1.gabc"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gate", "judge", f"{checkout}@{version}"),
            *("--workers", "0", "--out", str(tmp_path / "out")),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": f"-k {TEST}", "TOX_WORK_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    verdict = json.loads((tmp_path / "out" / "vllm-my-vllm.json").read_text("utf-8"))
    assert verdict["version"] == version
    ((test, result),) = [(one["test"], one["verdict"]) for one in verdict["tests"]]
    assert TEST in test
    # It is known to fail on the release, and the patch mends it.
    assert result == "pass", done.stdout
    assert any("does not fail as listed any more" in one for one in verdict["complaints"])
    assert done.returncode == 1

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import torch

from impl import plugin
from impl.plugin.mending import Mending, after_import, around
from impl.plugin.mendings import MENDINGS, transposed_weight_cannot_be_saved

ROOT = Path(__file__).parents[2]
MODULE = "mended_for_a_test"


@pytest.fixture(autouse=True)
def _unchanged_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before
    sys.modules.pop(MODULE, None)


@pytest.fixture
def mending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mending:
    (tmp_path / f"{MODULE}.py").write_text("def answer():\n    return 1\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    def change(module: ModuleType) -> None:
        around(module, "answer", lambda original: original() + 1)

    return Mending("a_finding", ("0.33.0",), {MODULE: change})


def test_the_entry_point_is_the_one_that_vllm_calls() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["vllm.general_plugins"] == {"dcp_qrep": "impl.plugin:register"}


@pytest.mark.parametrize("value", [None, "", "0"])
def test_off_it_changes_nothing(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(plugin.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(plugin.VARIABLE, value)
    before = list(sys.meta_path)
    plugin.register()
    assert sys.meta_path == before


def test_a_release_that_it_does_not_know_stays_as_it_is_and_is_told_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "1")
    monkeypatch.setattr(metadata, "version", lambda name: "0.99.0")
    before = list(sys.meta_path)
    with caplog.at_level(logging.WARNING, "vllm.dcp_qrep_plugin"):
        plugin.register()
    assert sys.meta_path == before
    (message,) = caplog.messages
    assert plugin.VARIABLE in message
    assert "0.99.0" in message
    assert "\n" not in message


def test_mendings_are_called_as_the_scripts_that_show_their_findings() -> None:
    for mending in MENDINGS:
        assert (ROOT / "properties" / "scripts" / f"{mending.name}.py").is_file()
        assert mending.releases


@pytest.mark.parametrize(
    ("version", "served"),
    [("0.33.0", True), ("0.33.0+cpu", True), ("0.33.1", False), ("0.33.0rc1", False)],
)
def test_a_mending_serves_every_build_of_its_releases(version: str, served: bool) -> None:
    assert Mending("a_finding", ("0.33.0",), {}).serves(version) is served


def test_a_vllm_of_no_version_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(plugin.VARIABLE, "1")
    monkeypatch.setattr(metadata, "version", lambda name: "from source")
    before = list(sys.meta_path)
    with caplog.at_level(logging.WARNING, "vllm.dcp_qrep_plugin"):
        plugin.register()
    assert sys.meta_path == before
    (message,) = caplog.messages
    assert "from source" in message


def test_a_build_that_lacks_what_is_changed_is_imported_and_told_of(
    mending: Mending, caplog: pytest.LogCaptureFixture
) -> None:
    def change(module: ModuleType) -> None:
        around(module, "question", lambda original: original())

    with caplog.at_level(logging.WARNING, "vllm.dcp_qrep_plugin"):
        after_import([Mending("another", ("0.33.0",), {MODULE: change}), mending])
        assert importlib.import_module(MODULE).answer() == 2
    (message,) = caplog.messages
    assert "question" in message


def test_derived_weights_are_left_out_of_a_saved_state() -> None:
    weight = torch.ones(2, 3)
    state = {"attn.kv_b_proj.weight": weight, "attn.W_UV": weight, "attn.W_UK_T_dcp_qrep": weight}
    saved = transposed_weight_cannot_be_saved.filter_subtensors(dict, state)
    assert saved.keys() == {"attn.kv_b_proj.weight"}


@pytest.mark.parametrize("imported", [False, True])
def test_a_module_is_changed_once_whenever_it_is_imported(mending: Mending, imported: bool) -> None:
    if imported:
        importlib.import_module(MODULE)
    for _ in range(2):
        after_import([mending])
    assert importlib.import_module(MODULE).answer() == 2


def test_a_module_that_is_only_looked_for_is_changed_when_it_is_imported(mending: Mending) -> None:
    after_import([mending])
    assert importlib.util.find_spec(MODULE) is not None
    assert importlib.import_module(MODULE).answer() == 2


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_off_every_function_of_vllm_is_vllms_own_and_on_those_of_mendings_are_not() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugin.identities"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    off, on = done.stdout.splitlines()[-2:]
    assert off == "off: nothing"
    version = metadata.version("vllm")
    for name in ("triton_mla_rounds_lse", "gather_output_duplicates_columns"):
        (mending,) = (one for one in MENDINGS if one.name == name)
        for module in mending.changes:
            assert (module in on) is mending.serves(version)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
def test_vllm_itself_finds_it_where_it_is_installed_and_calls_it(tmp_path: Path) -> None:
    info = tmp_path / "dcp_qrep_gate-0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dcp-qrep-gate\nVersion: 0.0\n")
    declared = "[vllm.general_plugins]\ndcp_qrep = impl.plugin:register\n"
    (info / "entry_points.txt").write_text(declared)
    done = subprocess.run(
        [sys.executable, "-m", "tests.plugin.loaded_by_vllm"],
        cwd=ROOT,
        env={
            **os.environ,
            plugin.VARIABLE: "1",
            "VLLM_PLUGINS": "dcp_qrep",
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = any(mending.serves(metadata.version("vllm")) for mending in MENDINGS)
    assert done.stdout.splitlines()[-1] == ("mended" if served else "as it was")

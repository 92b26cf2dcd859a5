"""What can be named for judgement, and what is said of anything else."""

from __future__ import annotations

import os
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from gate.judge.targets import Target, TargetError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "my-vllm"
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").touch()
    return folder


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("text", "subject", "slug"),
    [("impl", "impl", "impl"), ("vllm", "vllm", "vllm"), ("vllm==0.28.0", "vllm", "vllm-0.28.0")],
)
def test_subjects_and_releases_are_targets(text: str, subject: str, slug: str) -> None:
    target = Target.parse(text)
    assert (target.subject, target.slug, str(target)) == (subject, slug, text)


def test_a_checkout_has_the_version_of_its_nearest_tag(checkout: Path) -> None:
    _git(checkout, "init", "-q")
    _git(checkout, "commit", "-q", "--allow-empty", "-m", "x")
    _git(checkout, "tag", "v0.32.0")
    _git(checkout, "commit", "-q", "--allow-empty", "-m", "y")

    assert Target.parse(str(checkout)).version.startswith("0.32.0+1.g")
    _git(checkout, "add", ".")
    assert Target.parse(str(checkout)).version.endswith(".dirty")


def test_a_checkout_is_found_by_importlib_under_its_version(checkout: Path, tmp_path: Path) -> None:
    folders = Target.parse(f"{checkout}@0.30.0").install(tmp_path / "cache")
    (found,) = metadata.distributions(name="vllm", path=folders)
    assert found.version == "0.30.0"
    assert (Path(folders[-1]) / "vllm").is_dir()


def test_what_is_no_version_of_a_checkout_is_told_so(checkout: Path) -> None:
    with pytest.raises(TargetError, match="'main' is no version"):
        Target.parse(f"{checkout}@main")


def test_a_checkout_without_tags_asks_for_its_version(checkout: Path) -> None:
    with pytest.raises(TargetError, match="no version tag that git can see"):
        Target.parse(str(checkout))


@pytest.mark.parametrize(
    "text", ["vllm==", "vllm==0.32", "vllm>=0.30.0", "nothing", "/no/such/folder"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="is nothing that can be judged"):
        Target.parse(text)


def test_a_release_that_is_not_there_cannot_be_installed(tmp_path: Path) -> None:
    target = Target.parse("vllm==0.0.0")
    with pytest.raises(TargetError, match=r"vllm==0\.0\.0 cannot be installed"):
        target.install(tmp_path)
    assert not list(tmp_path.iterdir())


def _wheel(folder: Path, text: str) -> Path:
    """A wheel of a vLLM that is one file of ``text``."""
    path = folder / "vllm-0.32.0-py3-none-any.whl"
    info = "vllm-0.32.0.dist-info"
    files = {
        "vllm/__init__.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, content)
    return path


def test_with_the_plug_in_it_is_the_same_vllm_under_another_name(tmp_path: Path) -> None:
    target = Target.parse(str(_wheel(tmp_path, "")))
    plugged = target.with_plugin()
    assert (plugged.slug, str(plugged)) == ("vllm+plugin-0.32.0", "vllm+plugin==0.32.0")
    assert plugged.install(tmp_path / "cache") == target.install(tmp_path / "cache")


def test_a_wheel_is_unpacked_once_and_again_when_it_was_rebuilt(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    target = Target.parse(str(_wheel(tmp_path, "first = 1\n")))
    (first,) = target.install(cache)
    (Path(first) / "mark").touch()
    assert target.install(cache) == [first]
    assert (Path(first) / "mark").exists()

    (second,) = Target.parse(str(_wheel(tmp_path, "second = 2\n"))).install(cache)
    assert (Path(second) / "vllm" / "__init__.py").read_text("utf-8") == "second = 2\n"


def test_what_a_killed_run_had_begun_to_unpack_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    cache = tmp_path / "cache"
    of_the_dead, of_the_living = (
        cache / f"vllm-0.31.0.draft-of-{pid}" for pid in (ended.pid, os.getpid())
    )
    for draft in (of_the_dead, of_the_living):
        draft.mkdir(parents=True)
    (folder,) = Target.parse(str(_wheel(tmp_path, ""))).install(cache)
    assert sorted(path.name for path in cache.iterdir()) == sorted(
        [Path(folder).name, of_the_living.name]
    )

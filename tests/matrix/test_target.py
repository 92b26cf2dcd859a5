"""What can be named for judgement, and what is said of anything else."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from fixtures.matrix.target import Target, TargetError


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


def test_a_checkout_is_found_by_importlib_under_its_version(checkout: Path) -> None:
    with Target.parse(f"{checkout}@0.30.0").installed() as folders:
        (found,) = metadata.distributions(name="vllm", path=folders)
        assert found.version == "0.30.0"
        assert (Path(folders[-1]) / "vllm").is_dir()
    assert not Path(folders[0]).exists()
    assert checkout.exists()


def test_a_checkout_without_tags_asks_for_its_version(checkout: Path) -> None:
    with pytest.raises(TargetError, match="no version tag that git can see"):
        Target.parse(str(checkout))


@pytest.mark.parametrize("text", ["vllm==", "vllm>=0.30.0", "nothing", "/no/such/folder"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="is nothing that can be judged"):
        Target.parse(text)


def test_a_release_that_is_not_there_cannot_be_installed() -> None:
    target = Target.parse("vllm==0.0.0")
    with pytest.raises(TargetError, match=r"vllm==0\.0\.0 cannot be installed"), target.installed():
        pass

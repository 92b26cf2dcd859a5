"""What a run was asked to do and found installed: printed first, kept in the verdict file."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import hypothesis
import torch
from hypothesis import settings

# Variables that change what is judged, or how; a mistyped one shows by its presence.
_ENVIRONMENT = ("VLLM_", "TRITON_", "TORCH_", "NCCL_", "GLOO_", "OMP_", "MKL_", "CUDA_VISIBLE_")
_SOURCES = ("impl", "fixtures", "gate", "properties")
_KINDS = ("py", "toml", "md")
_PACKAGES = ("pytest", "pytest-xdist", "vllm", "triton", "transformers")


def collect(
    workers: int, seed: str | None, layout: str | None, known_failures: int
) -> Mapping[str, str]:
    """Every setting of the run by name, in the order in which it is printed.

    Args:
        workers: Processes that run the tests.
        seed: Of ``--hypothesis-seed``; None where none was given.
        layout: Of ``--layout``; None where none was given.
        known_failures: Entries of the known list that apply to the subject.
    """
    loaded = settings()
    found = {
        "source": source(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "hypothesis": hypothesis.__version__,
    }
    found |= {name: version for name in _PACKAGES if (version := _version_of(name))}
    found |= {
        "workers": str(workers),
        "cpus": str(len(os.sched_getaffinity(0))),
        "layouts": layout or "all",
        "known failures": str(known_failures),
        "max_examples": str(loaded.max_examples),
        "derandomize": str(loaded.derandomize).lower(),
        "seed": seed or ("from each test" if loaded.derandomize else "random"),
    }
    return found | {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(_ENVIRONMENT)
    }


def source() -> str:
    """Digest of what judges, known list and contract included.

    Results of equal digests can stand side by side.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for package in _SOURCES:
        for path in sorted(path for kind in _KINDS for path in (root / package).rglob(f"*.{kind}")):
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""

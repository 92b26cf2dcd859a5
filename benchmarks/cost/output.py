"""Rows of a run: to a file as they come, so that a run that is cut short has been worth it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.cost.ranks import Ranks


class Output:
    """Writes rows on rank 0, and says how far it is.

    Args:
        folder: Where ``name`` is written.
        name: Of the file.
        ranks: Who measures.
    """

    def __init__(self, folder: Path, name: str, ranks: Ranks) -> None:
        self._start = time.monotonic()
        self._first = ranks.rank == 0
        self.path = folder / name
        self.rows: list[dict[str, Any]] = []
        if self._first:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.write_text("", "utf-8")

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def row(self, kind: str, **fields: Any) -> None:
        """Keep and write one row."""
        row = {"k": kind, **fields}
        self.rows.append(row)
        if self._first:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")

    def skip(self, what: str, why: object) -> None:
        """Say and write what is left out."""
        said = " ".join(str(why).split())[:300]
        self.row("skip", what=what, why=said)
        self.say(f"skipped {what}: {said}")

    def say(self, text: str) -> None:
        """Tell the terminal."""
        if self._first:
            print(f"[{self.seconds:6.1f} s] {text}", flush=True)


def machine_of(ranks: Ranks) -> dict[str, Any]:
    """GPU, versions and topology."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("triton", "vllm", "flashinfer-python"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    described: dict[str, Any] = {
        "world": ranks.size,
        "gpu": "CPU",
        "command": " ".join(sys.argv),
        "versions": versions,
    }
    if ranks.device.type == "cuda":
        properties = torch.cuda.get_device_properties(ranks.device)
        described |= {
            "gpu": properties.name,
            "sms": properties.multi_processor_count,
            "l2": properties.L2_cache_size,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "driver": _said_by("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            "topology": _said_by("nvidia-smi", "topo", "-m"),
        }
    return described


def _said_by(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"not known: {error}"
    return done.stdout.strip()

"""Command lines that a person can paste into a shell in the root of the repository."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_with(root: Path = ROOT) -> str:
    """What starts this Python again in ``root``, with the same modules to import.

    Goes before a file, or before ``-m`` and a module.
    """
    python = shlex.quote(seen_from(root, sys.executable))
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join(seen_from(root, folder) for folder in folders)
    return f"PYTHONPATH={shlex.quote(path)} {python}" if path else python


def seen_from(root: Path, path: str) -> str:
    """``path`` relative to ``root``, absolute if they share no folder.

    Symbolic links stay: the Python of a virtual environment is one.
    """
    absolute = os.path.abspath(path)
    if os.path.commonpath([root, absolute]) == os.sep:
        return absolute
    return os.path.relpath(absolute, root)

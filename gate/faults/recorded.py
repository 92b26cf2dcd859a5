"""The shares that were reached, below which none may fall."""

from __future__ import annotations

import tomllib
from typing import Any

from gate.faults.fault import HERE

PATH = HERE / "recorded.toml"
_HEAD = """\
# Shares of seeded faults that the properties kill, which --check holds them to.
# Written by `python -m gate faults --record`.
"""


def read(subject: str, kind: str) -> dict[str, Any]:
    """``total`` and ``shares``, as fractions, of ``faults`` or ``mutants`` on ``subject``.

    Raises:
        KeyError: None were ever recorded.
    """
    shares: dict[str, Any] = tomllib.loads(PATH.read_text("utf-8"))[subject][kind]
    return shares


def write(subject: str, kind: str, shares: dict[str, Any]) -> None:
    """Replace what is recorded of ``kind`` on ``subject``."""
    whole: dict[str, dict[str, Any]] = {}
    if PATH.exists():
        whole = tomllib.loads(PATH.read_text("utf-8"))
    whole.setdefault(subject, {})[kind] = shares
    lines = [_HEAD]
    for subject_, kinds in sorted(whole.items()):
        for kind_, one in sorted(kinds.items()):
            lines.append(f"[{subject_}.{kind_}]\ntotal = {one['total']}")
            lines.append(f"[{subject_}.{kind_}.shares]")
            lines += [f'"{name}" = {fraction}' for name, fraction in one["shares"].items()]
            lines.append("")
    PATH.write_text("\n".join(lines).rstrip() + "\n", "utf-8")

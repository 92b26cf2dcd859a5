"""Prints in which modules of vLLM the plug-in replaces anything, switched off and then on."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

# Imported first, it has vLLM run on a CPU.
import fixtures.subjects.vllm.rank  # noqa: F401
from impl import plugin
from impl.plugin.mendings import MENDINGS

Identities = dict[str, dict[str, int]]


def _identities(modules: list[ModuleType]) -> Identities:
    """Of what each module holds, and of what its own classes do."""
    found: Identities = {}
    for module in modules:
        held = {name: id(value) for name, value in vars(module).items()}
        for name, value in vars(module).items():
            if isinstance(value, type) and value.__module__ == module.__name__:
                held |= {f"{name}.{inner}": id(one) for inner, one in vars(value).items()}
        found[module.__name__] = held
    return found


def _replaced(before: Identities, after: Identities) -> str:
    return " ".join(sorted(name for name in before if before[name] != after[name])) or "nothing"


def _main() -> None:
    modules = []
    for name in sorted({name for mending in MENDINGS for name in mending.changes}):
        try:
            modules.append(importlib.import_module(name))
        except ImportError as error:
            print(f"{name} needs what this machine has not: {error}", file=sys.stderr)
    before = _identities(modules)
    os.environ.pop(plugin.VARIABLE, None)
    plugin.register()
    print(f"off: {_replaced(before, _identities(modules))}")
    os.environ[plugin.VARIABLE] = "1"
    plugin.register()
    print(f"on: {_replaced(before, _identities(modules))}")


_main()

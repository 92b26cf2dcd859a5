"""Worlds whose ranks run a subject with a fault in it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from fixtures.ranks.api import P, Program, Rank, T, World
from fixtures.subjects.subject import WorldSource
from gate.faults.seeding import EditedFunction, seed_loaded

_SEEDED = "seeded fault"


class SeededWorlds:
    """Worlds whose ranks are given edited functions before they run their first program.

    Args:
        worlds: Their ranks must be processes of their own that run no other programs.
        subject_module: Imported first; brings the subject's modules.
        functions: What to edit.
    """

    def __init__(
        self, worlds: WorldSource, subject_module: str, functions: Sequence[EditedFunction]
    ) -> None:
        self._worlds = worlds
        self._subject_module = subject_module
        self._functions = tuple(functions)

    def get(self, size: int) -> World:
        """The world of ``size`` ranks."""
        return _SeededWorld(self._worlds.get(size), self._subject_module, self._functions)


class _SeededWorld:
    def __init__(
        self, world: World, subject_module: str, functions: tuple[EditedFunction, ...]
    ) -> None:
        self.kind = world.kind
        self.size = world.size
        self._world = world
        self._seed = (subject_module, functions)

    def run(self, program: Program[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T]:
        module, functions = self._seed
        return self._world.run(_run_seeded, module, functions, (program, args, kwargs))

    def rest(self) -> None:
        self._world.rest()

    def close(self) -> None:
        self._world.close()


def _run_seeded(
    rank: Rank,
    subject_module: str,
    functions: tuple[EditedFunction, ...],
    call: tuple[Program[..., T], tuple[Any, ...], dict[str, Any]],
) -> T:
    if _SEEDED not in rank.state:
        importlib.import_module(subject_module)
        seed_loaded(functions)
        rank.state[_SEEDED] = functions
    program, args, kwargs = call
    return program(rank, *args, **kwargs)

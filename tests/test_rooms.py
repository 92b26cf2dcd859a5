"""Which room may import which, by the import lines of every module."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOUSE = ("fixtures", "properties", "impl", "gate", "tests", "benchmarks")


@dataclass(frozen=True)
class Room:
    """What the modules of a room may import besides each other and the standard library.

    Attributes:
        ours: Rooms, packages or modules of this repository.
        others: Packages of others; None for any.
    """

    ours: tuple[str, ...] = ()
    others: tuple[str, ...] | None = None


# By the longest name that a module's own begins with.
ROOMS: Mapping[str, Room] = {
    "fixtures.model": Room(others=("torch",)),
    "fixtures.cases": Room(("fixtures.model",), ("torch",)),
    "fixtures.strategies": Room(("fixtures.model", "fixtures.cases"), ("hypothesis",)),
    # It shares no code with what it judges.
    "fixtures.oracle": Room(("fixtures.model", "fixtures.cases"), ("torch",)),
    "fixtures.programs": Room(
        ("fixtures.model", "fixtures.cases", "fixtures.subjects.rank", "fixtures.ranks.api"),
        ("torch",),
    ),
    "fixtures.ranks": Room(("fixtures.model",)),
    "fixtures.subjects": Room(
        (
            "fixtures.model",
            "fixtures.cases",
            "fixtures.programs",
            "fixtures.subjects.rank",
            "fixtures.ranks",
        )
    ),
    "fixtures.subjects.rank": Room(("fixtures.model", "fixtures.ranks.api"), ("torch",)),
    "fixtures.subjects.impl.subject": Room(
        ("fixtures.subjects.subject", "fixtures.subjects.impl", "impl"), ("torch",)
    ),
    "fixtures.subjects.impl.rank": Room(
        ("fixtures.model", "fixtures.subjects", "fixtures.ranks.api", "impl")
    ),
    "fixtures.subjects.vllm.plugged": Room(
        ("fixtures.subjects.subject", "fixtures.subjects.vllm", "impl.plugin"), ()
    ),
    "fixtures.subjects.vllm.rank.plugged": Room(("fixtures.subjects", "impl.plugin"), ()),
    "fixtures.subjects.vllm.rank": Room(
        ("fixtures.model", "fixtures.subjects", "fixtures.ranks.api")
    ),
    "fixtures": Room(),
    "properties": Room(("fixtures",)),
    "impl": Room(),
    "gate": Room(("fixtures", "properties.contract")),
    "tests": Room(("fixtures", "properties", "impl", "gate")),
    "benchmarks": Room(("fixtures", "properties", "impl", "gate")),
    "conftest": Room(("gate",)),
}
# What runs on a rank, and what it must never load.
ON_RANKS = ("fixtures.programs", "fixtures.subjects.impl.rank", "fixtures.subjects.vllm.rank")
NEVER_ON_RANKS = ("hypothesis", "fixtures.oracle", "fixtures.strategies")

Imports = Mapping[str, Set[str]]


@functools.cache
def sources() -> Mapping[str, str]:
    """Text of every module of the repository by its name."""
    paths = [path for folder in HOUSE for path in (ROOT / folder).rglob("*.py")]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text("utf-8")
        )
        for path in (*paths, ROOT / "conftest.py")
    }


@functools.cache
def import_lines(text: str) -> tuple[tuple[str, str], ...]:
    """Each module that a text imports, anywhere, and the name that it takes from it or none."""
    lines: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            lines += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, "relative imports hide where they lead"
            lines += [(node.module, alias.name) for alias in node.names]
    return tuple(lines)


def imports(modules: Mapping[str, str]) -> Imports:
    """Names of the modules that each of ``modules`` imports."""
    return {
        importer: frozenset(
            f"{module}.{name}" if f"{module}.{name}" in modules else module
            for module, name in import_lines(text)
        )
        for importer, text in modules.items()
    }


def within(module: str, packages: Iterable[str]) -> bool:
    """True if ``module`` is one of ``packages`` or in one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def room_of(module: str) -> str:
    return max((room for room in ROOMS if within(module, (room,))), key=len)


def may_import(room: str, target: str) -> bool:
    rules = ROOMS[room]
    if within(target, (*HOUSE, "conftest")):
        return room_of(target) == room or within(target, rules.ours)
    package = target.partition(".")[0]
    known = rules.others is None or package in rules.others
    return known or package in sys.stdlib_module_names


def strangers(imported: Imports, room: str) -> list[str]:
    """Import lines of a room that its rule forbids, but for those of the gate."""
    return [
        f"{module} imports {target}"
        for module, targets in sorted(imported.items())
        if room_of(module) == room
        for target in sorted(targets)
        if not may_import(room, target) and not within(target, ("gate",))
    ]


def importers_of_the_gate(imported: Imports) -> list[str]:
    return sorted(
        module
        for module, targets in imported.items()
        if not may_import(room_of(module), "gate")
        and any(within(target, ("gate",)) for target in targets)
    )


def cycle(imported: Imports) -> list[str]:
    """A cycle among the modules of the repository, each imported by the next; or none."""
    ours = {module: targets & imported.keys() - {module} for module, targets in imported.items()}
    try:
        TopologicalSorter(ours).prepare()
    except CycleError as error:
        modules: list[str] = error.args[1]
        return modules
    return []


def ways_to(imported: Imports, starts: Iterable[str], ends: Iterable[str]) -> list[str]:
    """How the modules within ``starts`` come to load one within ``ends``, step by step."""
    starts, ends = tuple(starts), tuple(ends)
    ways = {module: module for module in imported if within(module, starts)}
    pending, reached = list(ways), []
    while pending:
        module = pending.pop()
        for target in imported[module]:
            names = target.split(".")
            # A package is loaded before what is in it.
            for name in (".".join(names[:count]) for count in range(1, len(names) + 1)):
                if name in ways:
                    continue
                ways[name] = f"{ways[module]} -> {name}"
                if within(name, ends):
                    reached.append(ways[name])
                elif name in imported:
                    pending.append(name)
    return reached


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_it_may(room: str) -> None:
    assert not strangers(imports(sources()), room)


def test_nothing_else_imports_the_gate() -> None:
    assert not importers_of_the_gate(imports(sources()))


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not cycle(imports(sources()))


def test_ranks_load_neither_hypothesis_nor_what_is_expected() -> None:
    assert not ways_to(imports(sources()), ON_RANKS, NEVER_ON_RANKS)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("fixtures.model.dims", "from fixtures.cases.decode import DecodeCase"),
        ("fixtures.cases.linear", "from fixtures.oracle.bounds import exact"),
        ("fixtures.cases.linear", "from hypothesis import strategies"),
        ("fixtures.strategies.linear", "from fixtures.programs import linear"),
        ("fixtures.strategies.startup", "from fixtures.oracle.startup import obstacles"),
        ("fixtures.oracle.linear", "from fixtures.programs import linear"),
        ("fixtures.oracle.ledger", "from fixtures.ranks.api import Collective"),
        ("fixtures.oracle.decode", "from fixtures.subjects.rank import RankSubject"),
        ("fixtures.oracle.decode", "import impl.merge"),
        ("fixtures.oracle.decode", "import numpy"),
        ("fixtures.programs.linear", "from fixtures.oracle import linear"),
        ("fixtures.programs.linear", "from fixtures.subjects.subject import Subject"),
        ("fixtures.programs.linear", "import hypothesis"),
        ("fixtures.ranks.api", "from fixtures.programs import linear"),
        ("fixtures.subjects.rank", "from fixtures.programs import linear"),
        ("fixtures.subjects.impl.rank", "from fixtures.cases.linear import LinearCase"),
        ("fixtures.subjects.registry", "from fixtures.oracle import check"),
        ("properties.test_lin", "import impl.linear"),
        ("impl.linear", "from fixtures.model.layout import Layout"),
        ("gate.results", "from properties import pinned"),
    ],
)
def test_a_stranger_in_a_room_is_found(module: str, line: str) -> None:
    seeded = {**sources(), module: f"{sources()[module]}\n{line}\n"}
    (stranger,) = strangers(imports(seeded), room_of(module))
    assert stranger.startswith(f"{module} imports ")


@pytest.mark.parametrize("module", ["fixtures.model.dims", "impl.linear", "properties.contract"])
def test_who_else_imports_the_gate_is_found(module: str) -> None:
    seeded = {**sources(), module: "def late():\n    from gate import profiles\n"}
    assert module in importers_of_the_gate(imports(seeded))


def test_a_circle_is_found() -> None:
    seeded = {
        **sources(),
        "fixtures.model.layout": "def late():\n    from fixtures.model import selection\n",
    }
    assert {"fixtures.model.layout", "fixtures.model.selection"} <= set(cycle(imports(seeded)))


@pytest.mark.parametrize(
    ("module", "line", "end"),
    [
        ("fixtures.ranks.api", "from hypothesis import reject", "hypothesis"),
        ("fixtures.model.layout", "from fixtures.oracle import check", "fixtures.oracle"),
        ("fixtures.subjects.environment", "import fixtures.strategies", "fixtures.strategies"),
        ("fixtures.subjects", "import hypothesis", "hypothesis"),
    ],
)
def test_a_way_from_a_rank_to_hypothesis_or_the_oracle_is_found(
    module: str, line: str, end: str
) -> None:
    seeded = {**sources(), module: f"{sources()[module]}\n{line}\n"}
    ways = ways_to(imports(seeded), ON_RANKS, NEVER_ON_RANKS)
    assert any(f"{module} -> {end}" in way for way in ways)

"""Edited source in a living process."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from gate.faults import seeding, source
from gate.faults.seeding import edited_functions, seed_imports, seed_loaded
from gate.faults.source import FaultError

TEXT = """\
import functools


def counted(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + 100
    return wrapper


STEP = 1


def plus(x):
    return x + STEP


@counted
def wrapped(x):
    return x + STEP


class Box:
    @property
    def size(self):
        return 3

    @staticmethod
    def make():
        return Box()

    def twice(self):
        return super().__hash__() * 0 + 2
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of a package that nobody else imports."""
    package = tmp_path / "seedling"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "box.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    source.text_of.cache_clear()
    import importlib

    yield importlib.import_module("seedling.box")
    for name in ("seedling.box", "seedling"):
        sys.modules.pop(name, None)
    source.text_of.cache_clear()


def test_whoever_holds_a_function_calls_the_edited_code(module: ModuleType) -> None:
    plus, wrapped, box = module.plus, module.wrapped, module.Box()
    before = Path(module.__file__ or "").read_text()
    text = (
        TEXT.replace("x + STEP", "x - STEP").replace("return 3", "return 4").replace("+ 2", "+ 5")
    )
    functions = edited_functions({"seedling.box": text})
    assert {one.qualname for one in functions} == {"plus", "wrapped", "Box.size", "Box.twice"}
    seed_loaded(functions)
    assert plus(5) == 4
    assert wrapped(5) == 104
    assert box.size == 4
    assert box.twice() == 5
    assert Path(module.__file__ or "").read_text() == before


def test_the_source_of_an_edited_function_is_the_edited_one(module: ModuleType) -> None:
    text = TEXT.replace("    return x + STEP\n\n\n@", "    y = x\n    return y - STEP\n\n\n@")
    seed_loaded(edited_functions({"seedling.box": text}))
    assert inspect.getsource(module.plus) == "def plus(x):\n    y = x\n    return y - STEP\n"
    assert inspect.getsource(module.Box.make).endswith("return Box()\n")


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("STEP = 1", "STEP = 2"),
        TEXT.replace("def plus(x)", "def plus(x, y=1)"),
        TEXT.replace("@counted\n", ""),
        TEXT + "\n\ndef more():\n    return 1\n",
    ],
    ids=["nothing", "constant", "signature", "decorator", "function"],
)
def test_only_bodies_can_be_edited_in_a_living_module(module: ModuleType, text: str) -> None:
    with pytest.raises(FaultError, match="only bodies of functions"):
        edited_functions({"seedling.box": text})


def test_a_function_that_somebody_replaced_is_not_edited(module: ModuleType) -> None:
    functions = edited_functions({"seedling.box": TEXT.replace("x + STEP\n\n\n@", "x\n\n\n@")})
    module.plus = module.Box.make  # type: ignore[attr-defined]
    with pytest.raises(FaultError, match=r"plus of seedling.box is"):
        seed_loaded(functions)


def test_a_closure_cannot_change(module: ModuleType) -> None:
    text = TEXT.replace("super().__hash__() * 0 + 2", "2")
    with pytest.raises(FaultError, match=r"twice of seedling.box"):
        seed_loaded(edited_functions({"seedling.box": text}))


def test_a_module_is_imported_edited_and_its_file_untouched(module: ModuleType) -> None:
    roots = [
        str(Path(file).parents[up])
        for file, up in ((seeding.__file__, 2), (module.__file__ or "", 1))
    ]
    script = f"""
import inspect, subprocess, sys, traceback
sys.path[:0] = {roots!r}
from gate.faults.seeding import seed_imports, seed_started_processes
text = {TEXT.replace("STEP = 1", "STEP = 7").replace("x + STEP", "x + STEP  # edited")!r}
seed_imports({{"seedling.box": text}})
seed_started_processes({{"seedling.box": text}})
started = [sys.executable, "-O", "-c", "from seedling.box import plus; exit(plus(1))"]
assert subprocess.run(started).returncode == 8
from seedling.box import plus
assert plus(1) == 8
assert "# edited" in inspect.getsource(plus)
try:
    plus("")
except TypeError:
    assert "# edited" in traceback.format_exc()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert Path(module.__file__ or "").read_text() == TEXT


def test_a_module_that_is_there_already_cannot_be_seeded(module: ModuleType) -> None:
    with pytest.raises(FaultError, match=r"seedling.box was imported before"):
        seed_imports({"seedling.box": TEXT})

"""Bring edited source to life, in this process alone: files and installations stay untouched."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import linecache
import marshal
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from gate.faults.source import FaultError, definitions, text_of

_TEXTS = "DCP_QREP_SEEDED_TEXTS"
_STARTUP = str(Path(__file__).parent / "startup")


def seed_imports(texts: Mapping[str, str]) -> None:
    """Have this process import ``texts``, edited source by module, in place of the files.

    Raises:
        FaultError: One of the modules was imported before.
    """
    if early := sorted(texts.keys() & sys.modules.keys()):
        raise FaultError(f"{', '.join(early)} was imported before the fault could be seeded")
    sys.meta_path.insert(0, _Finder(texts))


def seed_started_processes(texts: Mapping[str, str]) -> None:
    """Have every Python process that this one starts import ``texts`` in place of the files.

    They find what they need in their environment, as long as this process lives.
    """
    descriptor = os.memfd_create("seeded-texts")
    os.write(descriptor, json.dumps(dict(texts)).encode())
    os.environ[_TEXTS] = f"/proc/{os.getpid()}/fd/{descriptor}"
    sys.path.insert(0, _STARTUP)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))


def seed_from_parent() -> None:
    """Import what the process that started this one was seeded with."""
    with open(os.environ[_TEXTS], encoding="utf-8") as file:
        seed_imports(json.load(file))


class _Finder(MetaPathFinder):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._texts:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._texts[fullname])
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_source(self, fullname: str) -> str:
        return self._text

    def get_code(self, fullname: str) -> CodeType:
        _show_in_tracebacks(self.path, self._text)
        return compile(self._text, self.path, "exec", dont_inherit=True)


def _show_in_tracebacks(path: str, text: str) -> None:
    # An entry without a time stamp is never checked against the file.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


@dataclass(frozen=True, slots=True)
class EditedFunction:
    """A function whose body was edited.

    Attributes:
        module: Where it is defined.
        qualname: Its name there; a method's with its class.
        code: Its new code object, marshaled.
        text: Edited source of the whole module, for who reads a function's source.
    """

    module: str
    qualname: str
    code: bytes
    text: str


def edited_functions(texts: Mapping[str, str]) -> tuple[EditedFunction, ...]:
    """The functions whose bodies ``texts``, edited source by module, change.

    Raises:
        FaultError: Something else than the body of a function is changed.
    """
    found = []
    for module, text in texts.items():
        skeleton, before = _outline(text_of(module))
        edited_skeleton, after = _outline(text)
        changed = [name for name, body in after.items() if body != before.get(name)]
        if edited_skeleton != skeleton or not changed:
            raise FaultError(
                f"{module}: only bodies of functions can be edited in a module that is imported"
            )
        # Under the file's own name, its untouched text would be found for the source.
        compiled = compile(text, f"<{module} with a fault>", "exec", dont_inherit=True)
        codes = dict(_codes(compiled))
        found += [
            EditedFunction(module, name, marshal.dumps(codes[name]), text) for name in changed
        ]
    return tuple(found)


@functools.lru_cache(maxsize=16)
def _outline(text: str) -> tuple[str, dict[str, str]]:
    """A module without the bodies of its functions, and those bodies by qualified name.

    A function inside another belongs to the body of that one.
    """
    tree = ast.parse(text)
    bodies: dict[str, str] = {}
    for name, node in definitions(tree):
        if "<locals>" not in name and not isinstance(node, ast.ClassDef):
            bodies[name] = "".join(ast.dump(statement) for statement in node.body)
            node.body = [ast.Pass()]
    return ast.dump(tree), bodies


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Code objects of functions that are not inside another, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant.co_qualname, constant
            else:
                yield from _codes(constant)


def seed_loaded(functions: Sequence[EditedFunction]) -> None:
    """Give functions of modules that may be imported already their edited code.

    Whoever holds such a function, under whatever name or decorator, calls the edited code; a
    kernel that has not run yet, and whose source Triton's interpreter rewrites then, as well.

    Raises:
        FaultError: A function is not found, or its closure would change.
    """
    for edited in functions:
        function, code = _live(edited), marshal.loads(edited.code)
        _show_in_tracebacks(code.co_filename, edited.text)
        try:
            function.__code__ = code
        except ValueError as error:
            raise FaultError(f"{edited.qualname} of {edited.module}: {error}") from error


def _live(edited: EditedFunction) -> FunctionType:
    found: Any = importlib.import_module(edited.module)
    for name in edited.qualname.split("."):
        found = inspect.getattr_static(found, name)
    while not isinstance(found, FunctionType) or found.__code__.co_qualname != edited.qualname:
        for attribute in ("__wrapped__", "__func__", "fget", "fn"):
            if inner := getattr(found, attribute, None):
                found = inner
                break
        else:
            raise FaultError(
                f"{edited.qualname} of {edited.module} is {found!r}, behind which no function "
                "of that name is found"
            )
    return found

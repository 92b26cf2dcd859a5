"""What a mending is, and how it reaches the modules of vLLM that it changes."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from packaging.version import Version

Change = Callable[[Any], None]
# Below vLLM's own logger, so that its level and its handlers count here too.
logger = logging.getLogger("vllm.dcp_qrep_plugin")


@dataclass(frozen=True, slots=True)
class Mending:
    """What makes one finding go away.

    Attributes:
        name: Of the finding, as its script is called.
        releases: The releases of vLLM that it was written for and judged on.
        changes: What is done to a module of vLLM once that is imported, by its name.
    """

    name: str
    releases: tuple[str, ...]
    changes: Mapping[str, Change]

    def serves(self, version: str) -> bool:
        """Whether it was written for ``version``, in whatever build of that release."""
        return Version(version).public in self.releases


def after_import(mendings: Iterable[Mending]) -> None:
    """Make the changes of ``mendings``: now in what is imported, else when it is.

    Nothing of vLLM is imported for it, and a mending that was there before is not put in twice.
    """
    present = next((finder for finder in sys.meta_path if isinstance(finder, _Watcher)), None)
    known = present.mendings if present is not None else ()
    new = [mending for mending in mendings if mending not in known]
    if not new:
        return
    if present is None:
        present = _Watcher()
        sys.meta_path.insert(0, present)
    present.mendings = (*known, *new)
    for mending in new:
        for name, change in mending.changes.items():
            if name in sys.modules:
                _apply(change, sys.modules[name])


class _Watcher(MetaPathFinder):
    """Finds a module as the others would, and has it changed once it is executed."""

    def __init__(self) -> None:
        self.mendings: tuple[Mending, ...] = ()
        self._asking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        changes = [
            mending.changes[fullname] for mending in self.mendings if fullname in mending.changes
        ]
        if not changes or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.remove(fullname)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, changes)
        return spec


class _Loader(Loader):
    """Loads a module as another does, which others may share, and changes it then."""

    def __init__(self, loader: Any, changes: Sequence[Change]) -> None:
        self._loader = loader
        self._changes = changes

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for change in self._changes:
            _apply(change, module)

    def __getattr__(self, name: str) -> Any:
        """What else is asked of a loader, the module's source for one."""
        return getattr(self._loader, name)


def _apply(change: Change, module: ModuleType) -> None:
    """Change a module, or say that a build of the release does not have what is changed."""
    try:
        change(module)
    except AttributeError as error:
        logger.warning("%s stays as it is, being another than released: %s", module.__name__, error)


def around(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace a function of vLLM's by one that is handed the original before its arguments.

    Args:
        owner: The class or module that has it.
        name: What it is called there.
        function: Called with the original, then as the original was.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(replaced) if static else replaced)

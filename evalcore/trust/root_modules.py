"""Modules loaded from folders that are not on `sys.path`, each folder with names of its own.

Two suites may both have a `targets.py` and a `helper.py` beside it. While a module of one folder is
being loaded, the modules of the other folders are out of sight, also those that a test or a
notebook has imported from its own folder; afterwards everything that stood in `sys.modules` before
stands there again, and a module that has the name of another package that is installed
(`duckdb.py`) is out of sight: the engine imports what it needs when it needs it. A package that is
installed from the folder itself (as editable) is the same one for everybody. An import inside a
function, made when the function is called, finds modules of every folder loaded so far, after
everything installed; where two folders have the same name it gets the one that was loaded first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from os import scandir
from pathlib import Path
from threading import RLock, get_ident
from types import ModuleType
from typing import Final

from evalcore.trust.calls import is_installed_file

_UNCERTAIN_S: Final = 2.0


def locate(root: Path, name: str) -> Path | None:
    """Return the file of module `name` below `root` (resolved), or the folder of a namespace.

    Nothing is imported. None if there is no such file, or if it or a package on the way to it
    leads outside `root` through a symbolic link.
    """
    *packages, last = name.split(".")
    folder = root
    for package in packages:
        folder = folder / package
        if not folder.is_dir() or not _is_inside(folder / "__init__.py", root):
            return None
    files = (folder / last / "__init__.py", folder / f"{last}.py")
    file = next((file for file in files if file.is_file()), folder / last)
    exists = file in files or file.is_dir()
    return file if exists and _is_inside(file, root) else None


def _is_inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


class _SourceLoader(SourceFileLoader):
    """Loads a module from its source as it is now.

    Python takes bytecode for that of a source with the same size and second of writing; of two
    versions that are saved within a second, it would execute the first.
    """

    def get_data(self, path: str) -> bytes:
        """Return the data of a file; raises `OSError` for bytecode that may be outdated."""
        if path.endswith(".pyc"):
            source = Path(self.path).stat()
            # A copy may keep the time of writing; that of the file's last change is the system's.
            age_s = Path(path).stat().st_mtime - max(source.st_mtime, source.st_ctime)
            if age_s < _UNCERTAIN_S:
                raise OSError(f"{path} may be older than its source")
        return super().get_data(path)


class _RootFinder(MetaPathFinder):
    """Finds modules below one root. `modules` are those it found that were then loaded.

    `parent_packages` are those of the module that is being loaded: for them a folder without
    `__init__.py` comes before an installed package of the same name, whose `__init__` must not run.
    `thread` is loading something; others, the engine's, find what is installed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, ModuleType] = {}
        self.parent_packages: frozenset[str] = frozenset()
        self.thread: int | None = None
        self._located: set[str] = set()
        self._versions: dict[str, tuple[int, int] | None] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's parameter
    ) -> ModuleSpec | None:
        """Return the spec of a module below the root; the standard library is never hidden."""
        top, *_ = packages = fullname.split(".")
        if top in sys.stdlib_module_names:
            return None
        if self.thread not in {None, get_ident()} and _is_installed(top):
            return None
        if path is not None and str(self.root.joinpath(*packages[:-1])) not in path:
            return None
        if top != fullname and top not in self._located:
            # Python has loaded the package from here by itself, and will load the rest of it.
            return None
        file = locate(self.root, fullname)
        if file is None:
            return None
        if file.is_dir():
            if (
                fullname not in self.parent_packages
                and PathFinder.find_spec(fullname, path) is not None
            ):
                return None
            namespace = ModuleSpec(fullname, None, is_package=True)
            namespace.submodule_search_locations = [str(file)]
            self._located.add(fullname)
            return namespace
        self._located.add(fullname)
        return spec_from_file_location(fullname, file, loader=_SourceLoader(fullname, str(file)))

    def keep(self) -> None:
        """Note which of the found modules were loaded."""
        self.modules = {name: sys.modules[name] for name in self._located if name in sys.modules}
        for name, module in self.modules.items():
            self._versions.setdefault(name, _version(module))

    def forget_if_changed(self) -> None:
        """Forget the modules if the file of one was written since; the next load is a new one."""
        own = {name: module for name, module in self.modules.items() if _is_of_users(module)}
        if all(self._versions[name] == _version(module) for name, module in own.items()):
            return
        for name, module in own.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            del self.modules[name], self._versions[name]
            self._located.discard(name)

    def hide(self) -> None:
        """Take this root's modules out of `sys.modules`."""
        for name, module in self.modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]

    def hide_shadows(self) -> None:
        """Take out the modules that hide an installed package of the same name from everyone."""
        for name, module in self.modules.items():
            top = name.partition(".")[0]
            if sys.modules.get(name) is module and _is_installed(top, but_not_in=self.root):
                del sys.modules[name]

    def hide_orphans(self) -> None:
        """Take out the submodules whose package is now, again, from elsewhere."""
        for name, module in self.modules.items():
            top = name.partition(".")[0]
            stranger = sys.modules.get(top) is not self.modules.get(top)
            if stranger and top != name and sys.modules.get(name) is module:
                del sys.modules[name]


class RootModules:
    """The modules of every root that this process has loaded from."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._finders: dict[Path, _RootFinder] = {}

    def load(self, name: str, root: Path, siblings: Sequence[Path]) -> ModuleType:
        """Return module `name`, which `locate` found below `root`; load it once per root.

        What it imports is looked for below `root`, then below `siblings` (both resolved), then
        where Python looks. Exceptions of the module go through.
        """
        with self._lock:
            finder = self._finder(root)
            if name in finder.modules:
                return finder.modules[name]
            loaded, file = sys.modules.get(name), locate(root, name)
            if loaded is not None and file is not None and _is_from(loaded, file):
                return loaded
            active = [finder, *(self._finder(other) for other in siblings if other != root)]
            with self._in_sight(name, active):
                return importlib.import_module(name)

    def forget_changed(self) -> None:
        """Forget the modules of each root of which a file was written since it was loaded.

        What is installed stays: the engine uses it.
        """
        with self._lock:
            for finder in self._finders.values():
                finder.forget_if_changed()

    def _finder(self, root: Path) -> _RootFinder:
        return self._finders.setdefault(root, _RootFinder(root))

    @contextmanager
    def _in_sight(self, name: str, active: Sequence[_RootFinder]) -> Iterator[None]:
        before = dict(sys.modules)
        for finder in self._finders.values():
            finder.hide()
        for finder in reversed(active):
            sys.modules.update(finder.modules)
        _hide_strangers(name, [finder.root for finder in active])
        parts = name.split(".")
        active[0].parent_packages = frozenset(".".join(parts[:end]) for end in range(1, len(parts)))
        for finder in active:
            finder.thread = get_ident()
        _place_finders(first=active)
        try:
            yield
        finally:
            active[0].parent_packages = frozenset()
            for finder in active:
                finder.thread = None
            for finder in active:
                finder.keep()
            for finder in active:
                finder.hide_shadows()
            sys.modules.update(before)
            for finder in active:
                finder.hide_orphans()
            _place_finders(last=list(self._finders.values()))


def _place_finders(*, first: Sequence[_RootFinder] = (), last: Sequence[_RootFinder] = ()) -> None:
    foreign = [hook for hook in sys.meta_path if not isinstance(hook, _RootFinder)]
    sys.meta_path[:] = [*first, *foreign, *last]


def _hide_strangers(name: str, roots: Sequence[Path]) -> None:
    """Take packages from elsewhere out of `sys.modules`, with all below them.

    That is the one of the same name as the module, and where a root has its own each that Python
    itself has loaded from a file of a user (of the test or the notebook that runs a suite).
    """
    own = name.partition(".")[0]
    hidden = set()
    for top in {own, *_names_in(roots)} & sys.modules.keys():
        file = next((file for root in roots if (file := locate(root, top))), None)
        present = sys.modules[top]
        if file is not None and _is_from(present, file):
            continue
        is_hidden = _is_of_users(present)
        if top == own or (is_hidden and file is not None and file.is_file()):
            hidden.add(top)
    for other in [key for key in sys.modules if key.partition(".")[0] in hidden]:
        del sys.modules[other]


def _names_in(roots: Sequence[Path]) -> set[str]:
    """Return the names that top-level modules of the roots may have."""
    names: set[str] = set()
    for root in roots:
        # A folder that is gone or may not be listed.
        with suppress(OSError), scandir(root) as entries:
            names.update(entry.name.removesuffix(".py") for entry in entries)
    return names - {"__main__"}


def _is_of_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and not is_installed_file(file)


def _is_installed(top: str, *, but_not_in: Path | None = None) -> bool:
    """Whether Python finds a package by itself, and elsewhere than below a certain root."""
    spec = PathFinder.find_spec(top)
    if spec is None or but_not_in is None or (file := locate(but_not_in, top)) is None:
        return spec is not None
    if spec.has_location and spec.origin is not None:
        return Path(spec.origin).resolve() != file.resolve()
    return str(file) not in list(spec.submodule_search_locations or ())


def _version(module: ModuleType) -> tuple[int, int] | None:
    """Return what changes when a module's file is written; None for a namespace, and if gone."""
    file = getattr(module, "__file__", None)
    with suppress(OSError):
        if file is not None:
            status = Path(file).stat()
            return status.st_mtime_ns, status.st_size
    return None


def _is_from(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    if file is not None:
        return Path(file).resolve() == path.resolve()
    return str(path) in list(getattr(module, "__path__", ()))


@cache
def root_modules() -> RootModules:
    """Return the one of this process: `sys.modules`, which it completes, is the process's too."""
    return RootModules()

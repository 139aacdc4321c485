"""Which Python a suite may name, and how it is found."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from evalcore.errors import EvalError, NotAllowedError, UsageError
from evalcore.mistakes.wording import suggest
from evalcore.trust.declared_names import declared_names
from evalcore.trust.missing_modules import is_installed, missing_modules
from evalcore.trust.root_modules import locate, root_modules

_DOTTED: Final = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_REFERENCE: Final = re.compile(rf"({_DOTTED}):({_DOTTED})")
_MISSING: Final = object()
NO_COMMANDS: Final = (
    "this process starts no programs for a plan that it cannot trust; "
    "EVALCORE_ALLOW_COMMANDS=1 allows it"
)


@dataclass(frozen=True, slots=True)
class ImportPolicy:
    """Modules below one of `roots`, or whose dotted name stands on `allowed` (or below one there).

    `roots` is empty for suites that reach a worker through the store: only `allowed` counts then.
    The roots come first, in their order; the standard library has to be on `allowed` like anything
    else that is installed. A module below a root is decided on and found without importing
    anything, and loaded once per root, so that equal names in two folders stay two modules.

    `commands` says whether a suite may start programs: those that its file names, plug-ins, blocks
    of code, git.
    """

    roots: tuple[Path, ...] = ()
    allowed: tuple[str, ...] = ()
    commands: bool = True

    def check_command(self, what: str) -> None:
        """Raise `NotAllowedError` if no program may be started; `what` would start it."""
        if not self.commands:
            raise NotAllowedError(f"{what}: {NO_COMMANDS}")

    def load(self, reference: str, method: str = "") -> Callable[..., Any]:
        """Return the callable that `module:function` names (`module:Class.method` too).

        An object that has `method` is taken as well.

        Raise `NotAllowedError` if trust does not grant it, `UsageError` if there is no such module
        or callable, or if the module raises while it is imported (with the type and text of that).
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            message = f"{reference!r} does not name a Python callable; write 'module:function'"
            raise UsageError(message)
        name, attributes = match.groups()
        with _loading(reference):
            root = self._root_of(name)
            if root is not None:
                roots = [path.resolve() for path in self.roots]
                module = root_modules().load(name, root, roots)
                return _callable_in(module, attributes, reference, method)
            if not self.allows(name):
                raise self._refusal(reference, name)
            function = _callable_in(importlib.import_module(name), attributes, reference, method)
            self._check_origin(function, reference)
            return function

    def check(self, reference: str) -> None:
        """Raise `UsageError` if there is surely no such callable; nothing is imported.

        That is so if there is no module of that name, or if the text of a module below a root shows
        that the name is not in it. What trust does not grant is left to `load`.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return
        name, attributes = match.groups()
        root = self._root_of(name)
        if root is None:
            refusal = None if self.allows(name) else self._refusal(reference, name)
            if isinstance(refusal, UsageError):
                raise refusal
            return
        file = locate(root, name)
        if file is not None and file.name != "__init__.py":
            _check_declared(file, attributes.partition(".")[0], reference)

    def check_modules(self, reference: str) -> None:
        """Raise `UsageError` if importing the callable surely fails; nothing is imported.

        Beside what `check` finds that is so for a module, allowed or imported by the callable's
        own, that is not installed.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return
        self.check(reference)
        name = match[1]
        root, top = self._root_of(name), name.partition(".")[0]
        if root is None:
            if not is_installed(top):
                raise UsageError(f"{reference}: there is no module '{top}'; install it")
            return
        file = locate(root, name)
        if file is None:
            return
        roots = [path.resolve() for path in self.roots]
        for missing in missing_modules(name, file, roots):
            position = f"{missing.file.name}:{missing.line}"
            message = f"{reference}: {position} imports '{missing.name}', {missing.reason}"
            raise UsageError(message)

    def allows(self, module: str) -> bool:
        """Whether the dotted name, or a package above it, stands on `allowed`."""
        return any(module == name or module.startswith(f"{name}.") for name in self.allowed)

    def _root_of(self, name: str) -> Path | None:
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        for root in (path.resolve() for path in self.roots):
            file = locate(root, name)
            if file is not None and file.is_file():
                return root
        return None

    def _check_origin(self, function: Callable[..., Any], reference: str) -> None:
        # A module on the list has its own imports in reach: `mine:run` with
        # `from subprocess import run` in mine.py would grant what is not on the list.
        if not (inspect.isroutine(function) or inspect.isclass(function)):
            return
        origin = getattr(function, "__module__", None)
        if isinstance(origin, str) and not self.allows(origin):
            message = (
                f"{reference}: it is defined in module '{origin}', which is not allowed; "
                f"allow that one with --allow-import {origin}"
            )
            raise NotAllowedError(message)

    def _refusal(self, reference: str, name: str) -> EvalError:
        if not self.roots:
            message = (
                f"{reference}: module '{name}' is not on the allow-list, and only that counts for "
                f"a suite from the store; allow it with --allow-import {name}"
            )
            return NotAllowedError(message)
        where = " or ".join(dict.fromkeys(str(root.resolve()) for root in self.roots))
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and (
            any(locate(root.resolve(), top) for root in self.roots) or not is_installed(top)
        ):
            hint = _did_you_mean(name, self._module_names())
            return UsageError(f"{reference}: there is no module '{name}' below {where}.{hint}")
        message = (
            f"{reference}: module '{name}' does not lie below {where} and is not on the "
            f"allow-list; allow it with --allow-import {name}"
        )
        if top in sys.stdlib_module_names:
            message += " (it is part of Python's standard library: a file of that name is hidden)"
        return NotAllowedError(message)

    def _module_names(self) -> Iterator[str]:
        for root in self.roots:
            for file in root.glob("*.py"):
                yield file.stem
            for file in root.glob("*/*.py"):
                parent = file.parent.name
                yield parent if file.stem == "__init__" else f"{parent}.{file.stem}"


@contextmanager
def _loading(reference: str) -> Iterator[None]:
    """Turn every exception of a foreign module, `sys.exit` included, into a `UsageError`."""
    try:
        yield
    except EvalError:
        raise
    # A foreign module may raise anything, and `sys.exit()` in it must not end the run.
    except (Exception, SystemExit) as error:
        module = reference.partition(":")[0]
        message = f"{reference}: importing '{module}' failed: {type(error).__name__}: {error}"
        if "no known parent package" in str(error):
            message += f"; '{module}' is in no package: write the import without the dots"
        raise UsageError(message) from error


def _check_declared(file: Path, name: str, reference: str) -> None:
    """Raise `UsageError` if a module's text shows that it does not have the name."""
    try:
        declared = declared_names(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"{reference}: importing '{file.stem}' would fail: {what}") from error
    except OSError:
        return
    if declared is not None and name not in declared.names:
        hint = _did_you_mean(name, declared.functions)
        raise UsageError(f"{reference}: '{file.stem}' has no '{name}'.{hint}")


def _callable_in(
    module: ModuleType, attributes: str, reference: str, method: str
) -> Callable[..., Any]:
    value: Any = module
    for name in attributes.split("."):
        if name.startswith("__"):
            raise NotAllowedError(f"{reference}: '{name}' cannot be named; name a public function")
        member = getattr(value, name, _MISSING)
        if member is _MISSING:
            owner = getattr(value, "__name__", type(value).__name__)
            names = [
                key for key, member in getattr(value, "__dict__", {}).items() if callable(member)
            ]
            hint = _did_you_mean(name, names)
            raise UsageError(f"{reference}: '{owner}' has no '{name}'.{hint}")
        if isinstance(member, ModuleType):
            rest = attributes.rpartition(".")[2]
            message = (
                f"{reference}: '{name}' is a module; name the function's own module, "
                f"'{member.__name__}:{rest}'"
            )
            raise NotAllowedError(message)
        value = member
    if not callable(value) and not (method and callable(getattr(value, method, None))):
        what = f"not callable and has no '{method}'" if method else "not callable"
        raise UsageError(f"{reference}: it is {what} but of type {type(value).__name__}")
    return value  # type: ignore[no-any-return] # foreign by nature


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    return suggest(name, (public for public in names if not public.startswith("_")), most=10)

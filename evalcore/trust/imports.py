"""Which Python a suite may name, how it is found, and how it is called."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import importlib.util
import inspect
import re
import symtable
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from os import scandir
from pathlib import Path, PurePath
from threading import RLock
from types import ModuleType
from typing import Any, Final, TypeVar

from evalcore.errors import EvalError, NotAllowedError, UsageError
from evalcore.wording import suggest

_DOTTED: Final = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_REFERENCE: Final = re.compile(rf"({_DOTTED}):({_DOTTED})")
_MISSING: Final = object()
# With these a module can have names that its text does not bind.
_DYNAMIC: Final = re.compile(
    r"import\s+\*|\b(?:__dict__|__getattr__|exec|global|globals|locals|modules|setattr|vars)\b"
)
LOCAL: Final = "local:"
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

    def check(self, reference: str, *, here: bool = False) -> None:
        """Raise `UsageError` if there is surely no such callable; nothing is imported.

        That is so if there is no module of that name, or if the text of a module below a root does
        not bind the name. An allowed module may be installed where the suite runs, unless that is
        `here`. What trust does not grant is left to `load`.
        """
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return
        root, top = self._root_of(match[1]), match[1].partition(".")[0]
        if root is not None:
            _check_bound(root, match[1], match[2].partition(".")[0], reference)
        elif not self.allows(match[1]):
            refusal = self._refusal(reference, match[1])
            if isinstance(refusal, UsageError):
                raise refusal
        elif here and not _is_installed(top):
            raise UsageError(f"{reference}: there is no module '{top}'; install it")

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
        allow = f"allow it with --allow-import {name}"
        if not self.roots:
            return NotAllowedError(
                f"{reference}: module '{name}' is not on the allow-list, and only that counts for "
                f"a suite from the store; {allow}"
            )
        where = " or ".join(dict.fromkeys(str(root.resolve()) for root in self.roots))
        top = name.partition(".")[0]
        is_standard = top in sys.stdlib_module_names
        is_here = any(locate(root.resolve(), top) for root in self.roots)
        if not is_standard and (is_here or not _is_installed(top)):
            modules = (file.stem for root in self.roots for file in root.glob("*.py"))
            hint = _did_you_mean(name, modules)
            return UsageError(f"{reference}: there is no module '{name}' below {where}.{hint}")
        message = f"{reference}: module '{name}' does not lie below {where} and is not on the "
        message += f"allow-list; {allow}"
        if is_standard:
            message += " (it is part of Python's standard library: a file of that name is hidden)"
        return NotAllowedError(message)


def find_callable(
    reference: str, imports: ImportPolicy, objects: Mapping[str, Any], method: str = ""
) -> Any:
    """Return what `local:NAME` or `module:function` names; errors as `ImportPolicy.load`.

    `objects` are the functions and scorers of the program that defined the suite, by reference.
    """
    if reference in objects:
        return objects[reference]
    try:
        return imports.load(reference, method)
    except EvalError as error:
        if not reference.startswith(LOCAL):
            raise
        name = reference.removeprefix(LOCAL)
        raise UsageError(
            f"'{name}' belongs to the Python program that defined this suite; run the suite there, "
            "or name the function as 'module:function'"
        ) from error


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


def _check_bound(root: Path, module: str, name: str, reference: str) -> None:
    """Raise `UsageError` if a module's text shows that it does not have the name."""
    file = locate(root, module)
    if file is None or file.suffix != ".py" or file.name == "__init__.py":
        return
    try:
        source = file.read_text("utf-8")
        symbols = symtable.symtable(source, str(file), "exec").get_symbols()
    except (SyntaxError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"{reference}: importing '{file.stem}' would fail: {what}") from error
    except OSError:
        return
    bound = [symbol for symbol in symbols if symbol.is_assigned() or symbol.is_imported()]
    if _DYNAMIC.search(source) or name in {symbol.get_name() for symbol in bound}:
        return
    hint = _did_you_mean(name, (each.get_name() for each in bound if each.is_namespace()))
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


def _is_installed(top: str) -> bool:
    """Whether Python would find a module of this name; nothing is imported to know it."""
    if top in sys.modules or top in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


class RootModules:
    """The modules of every root that this process has loaded from, each root with its own names.

    Two suites may both have a `targets.py` and a `helper.py` beside it. While a module of one root
    is being loaded, its roots come first on `sys.path`, and modules of other roots and of the code
    that runs the suite are out of sight; afterwards they stand in `sys.modules` again. An import
    inside a function finds modules of every root loaded so far, after everything installed.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._modules: dict[Path, dict[str, ModuleType]] = {}
        self._versions: dict[str, tuple[int, int] | None] = {}

    def load(self, name: str, root: Path, siblings: Sequence[Path]) -> ModuleType:
        """Return module `name`, which `locate` found below `root`; load it once per root.

        What it imports is looked for below `root`, then below `siblings` (both resolved), then
        where Python looks. Exceptions of the module go through.
        """
        with self._lock:
            if (known := self._modules.setdefault(root, {}).get(name)) is not None:
                return known
            loaded, file = sys.modules.get(name), locate(root, name)
            if loaded is not None and file is not None and _is_from(loaded, file):
                return loaded
            with self._in_sight(name.partition(".")[0], list(dict.fromkeys([root, *siblings]))):
                return importlib.import_module(name)

    def forget_changed(self) -> None:
        """Forget the modules of each root of which a file was written since it was loaded."""
        with self._lock:
            for own in self._modules.values():
                if any(self._versions.get(name) != _version(own[name]) for name in own):
                    for name, module in own.items():
                        if sys.modules.get(name) is module:
                            del sys.modules[name]
                    own.clear()

    @contextmanager
    def _in_sight(self, top: str, roots: list[Path]) -> Iterator[None]:
        path, writes_bytecode = list(sys.path), sys.dont_write_bytecode
        others = [str(root) for root in self._modules if root not in roots]
        hidden = {
            name: sys.modules[name]
            for own in (own for root, own in self._modules.items() if root not in roots)
            for name, module in own.items()
            if sys.modules.get(name) is module
        }
        strangers = _strangers(top, roots)
        # A copy: another thread may import meanwhile.
        hidden |= {
            name: module
            for name, module in sys.modules.copy().items()
            if name.partition(".")[0] in strangers
        }
        for name in hidden:
            del sys.modules[name]
        for root in reversed(roots):
            sys.modules.update(self._modules.get(root, {}))
        sys.path[:] = [*map(str, roots), *(entry for entry in path if entry not in others)]
        # Of two versions that are saved within a second, Python would execute the first's bytecode.
        sys.dont_write_bytecode = True
        importlib.invalidate_caches()
        before = dict(sys.modules)
        try:
            yield
        finally:
            sys.dont_write_bytecode = writes_bytecode
            sys.path[:] = [*path, *(str(root) for root in roots if str(root) not in path)]
            for name, module in sys.modules.copy().items():
                if before.get(name) is module:
                    continue
                home = next((root for root in roots if _is_below(module, root)), None)
                if home is not None:
                    self._modules.setdefault(home, {})[name] = module
                    self._versions[name] = _version(module)
                    own_top = name.partition(".")[0]
                    # The engine imports what it needs when it needs it: nothing hides that.
                    if own_top in strangers or _is_found_elsewhere(own_top, path, roots):
                        del sys.modules[name]
            sys.modules.update(hidden)


def _strangers(top: str, roots: Sequence[Path]) -> set[str]:
    """Return the packages in `sys.modules` that hide those of the roots.

    That is the one of the same name as the module that is loaded, and where a root has its own each
    that is not installed but loaded by the test or the notebook that runs a suite.
    """
    names = {top}
    for root in roots:
        with suppress(OSError), scandir(root) as entries:  # gone, or not to be listed
            names.update(entry.name.removesuffix(".py") for entry in entries)
    found = set()
    for name in (names & sys.modules.keys()) - {"__main__"}:
        file = next((file for root in roots if (file := locate(root, name))), None)
        present = sys.modules[name]
        if file is not None and not _is_from(present, file):
            own_file = getattr(present, "__file__", None)
            is_of_user = own_file is not None and not is_installed_file(own_file)
            if name == top or (is_of_user and file.is_file()):
                found.add(name)
    return found


def _is_found_elsewhere(top: str, path: Sequence[str], roots: Sequence[Path]) -> bool:
    outside = [entry for entry in path if Path(entry or ".").resolve() not in roots]
    spec = PathFinder.find_spec(top, outside)
    return spec is not None and spec.has_location


def _is_below(module: ModuleType, root: Path) -> bool:
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(file, str) or is_installed_file(file):
        return False
    return Path(file).resolve().is_relative_to(root)


def _is_from(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    if file is not None:
        return Path(file).resolve() == path.resolve()
    return str(path) in list(getattr(module, "__path__", ()))


def _version(module: ModuleType) -> tuple[int, int] | None:
    """Return what changes when a module's file is written; None for a namespace, and if gone."""
    file = getattr(module, "__file__", None)
    with suppress(OSError):
        if file is not None:
            status = Path(file).stat()
            return status.st_mtime_ns, status.st_size
    return None


@cache
def root_modules() -> RootModules:
    """Return the one of this process: `sys.modules`, which it completes, is the process's too."""
    return RootModules()


FOREIGN_THREAD: Final = "evalcore-foreign"
T = TypeVar("T")
_LONGEST_TEXT: Final = 4_000


class ForeignError(Exception):
    """A foreign function raised `__cause__`; the text describes it on one line."""


async def call_foreign(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Return what the function returns, awaited if need be; raise `ForeignError` if it raises.

    An async function runs in the caller's event loop, any other in a daemon thread of its own. When
    the caller's time limit cancels the call, an async function is cancelled; a sync one cannot be
    stopped, and its result is dropped. Every exception is a `ForeignError`, `SystemExit` and a
    cancellation of its own included.
    """
    task = asyncio.current_task()
    cancellations = 0 if task is None else task.cancelling()

    def called() -> Any:
        try:
            return function(*arguments, **keywords)
        except BaseException as error:  # here: `StopIteration` does not leave a coroutine as it is
            raise _foreign(error) from error

    try:
        if _is_async(function):
            return await function(*arguments, **keywords)
        value = await in_thread(called)
        return await value if inspect.isawaitable(value) else value
    except ForeignError:
        raise
    except BaseException as error:  # a foreign function's, `SystemExit` too
        is_cancelled = task is not None and task.cancelling() > cancellations
        if is_cancelled and isinstance(error, asyncio.CancelledError):
            raise  # by the caller
        raise _foreign(error) from error


def _foreign(error: BaseException) -> ForeignError:
    return ForeignError(f"{text_of_error(error)}{place_of_error(error)}")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an instance with an async __call__
    )


async def in_thread(call: Callable[[], T]) -> T:
    """Return what `call` returns, from a daemon thread of its own; what it raises comes through.

    Unlike `asyncio.to_thread` no pool bounds the calls, and none that hangs holds up the end.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: T | None, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, raised = None, None
        try:
            value = context.run(call)
        except BaseException as error:  # noqa: BLE001 - raised in the task that awaits
            raised = error
        with suppress(RuntimeError):  # the loop has ended: no task waits
            loop.call_soon_threadsafe(deliver, value, raised)

    threading.Thread(target=run, name=FOREIGN_THREAD, daemon=True).start()
    returned, error = await ended
    if error is not None:
        raise error
    return returned  # type: ignore[return-value] # what `call` returned


def arguments_for(
    function: Callable[..., Any],
    values: Mapping[str, Any],
    in_order: Sequence[str],
    names: Mapping[str, str],
    more: Sequence[str] = (),
    *,
    keeps_defaults: bool = False,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call of a function of a suite.

    Parameters that `names` has get the value of that name, in any order; the others, and `*rest`,
    get those `in_order`, with `keeps_defaults` unless they have one. `**more` gets the values
    `more` by name.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C, without a signature
        return [values[in_order[0]]], {}
    given = {names[each.name] for each in parameters if each.name in names}
    waiting = [name for name in in_order if name not in given]
    takes_more = any(each.kind is each.VAR_KEYWORD for each in parameters)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    skipped = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            given.update(name for name in in_order if name not in waiting)
            keywords |= {name: values[name] for name in more if name not in given}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            if not takes_more:
                positional += [values[name] for name in waiting]
                waiting = []
        else:
            name = names.get(parameter.name)
            has_default = parameter.default is not parameter.empty
            if name is None and (not waiting or (has_default and keeps_defaults)):
                skipped = True
                continue
            value = values[waiting.pop(0) if name is None else name]
            if parameter.kind is parameter.KEYWORD_ONLY or skipped:
                keywords[parameter.name] = value
            else:
                positional.append(value)
    return positional, keywords


def text_of_error(error: BaseException) -> str:
    """Return the type and the text of an exception on one line, even if its `__str__` raises."""
    try:
        message = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - a foreign __str__
        message = ""
    name = type(error).__name__
    if len(message) > _LONGEST_TEXT:
        message = f"{message[:_LONGEST_TEXT]}…"
    return f"{name}: {message}" if message else name


def place_of_error(error: BaseException) -> str:
    """Return ` (file.py:7)`: the innermost line outside of installed packages; else nothing.

    The file is named as its module is imported, so that the text is the same in every folder.
    """
    suffix = ""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_installed_file(code.co_filename):
            module = str(traceback.tb_frame.f_globals.get("__name__", ""))
            path = PurePath(code.co_filename)
            depth = module.count(".") + (2 if path.name == "__init__.py" else 1)
            suffix = f" ({'/'.join(path.parts[-depth:])}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return suffix


@lru_cache(maxsize=256)
def is_installed_file(file: str) -> bool:
    """Whether a file is Python's, a package's or evalcore's: none that a suite's author writes."""
    path = PurePath(file)
    folders = (*map(PurePath, sysconfig.get_paths().values()), PurePath(__file__).parents[1])
    return file.startswith("<") or any(path.is_relative_to(folder) for folder in folders)

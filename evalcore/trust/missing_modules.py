"""Which modules a file's code needs to be imported and does not find; nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.trust.imported_names import path_entries
from evalcore.trust.root_modules import locate

_MOST_FILES: Final = 200


class MissingModule(NamedTuple):
    """A module that is not there, the file and line that import it, and why it is not there."""

    name: str
    file: Path
    line: int
    reason: str


def missing_modules(name: str, file: Path, roots: Sequence[Path]) -> Iterator[MissingModule]:
    """Yield what importing module `name` from `file` fails for, also through files below the roots.

    Only statements at the top of a module count: what stands in a function, an `if` or a `try` may
    never be imported. A file that changes `sys.path` is not judged.
    """
    waiting, judged = [(name, file)], {file}
    while waiting:
        module, current = waiting.pop()
        package = module.split(".") if current.name == "__init__.py" else module.split(".")[:-1]
        for dots, text, line in _imports(current):
            if dots > len(package):
                yield MissingModule("." * dots + text, current, line, _without_package(module))
                continue
            imported = ".".join((*package[: len(package) - dots + 1], text)).strip(".")
            imported = imported if dots else text.partition(".")[0]
            own = next((path for root in roots if (path := locate(root, imported))), None)
            if own is not None:
                if own.is_file() and own not in judged and len(judged) < _MOST_FILES:
                    judged.add(own)
                    waiting.append((imported, own))
            elif dots:
                if not _is_compiled(current.parents[dots - 1], text):
                    reason = f"and there is no module '{imported}'"
                    yield MissingModule("." * dots + text, current, line, reason)
            elif not is_installed(imported):
                reason = "and there is no such module; install it"
                yield MissingModule(imported, current, line, reason)


def is_installed(top: str) -> bool:
    """Whether Python would find a module of this name; nothing is imported to know it."""
    if top in sys.modules or top in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _without_package(module: str) -> str:
    top, _, inner = module.rpartition(".")
    if not top:
        return f"but '{inner}' is in no package; write the import without the dots"
    return f"which is above '{module.partition('.')[0]}'; write the import without the dots"


def _is_compiled(folder: Path, name: str) -> bool:
    *packages, last = name.split(".")
    return any(folder.joinpath(*packages).glob(f"{last}.*"))


def _imports(file: Path) -> Iterator[tuple[int, str, int]]:
    """Yield the names that a file imports in any case: the dots before them, the name, the line."""
    try:
        source = file.read_bytes()
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    if path_entries(source):
        return
    for node in tree.body:
        match node:
            case ast.Import():
                yield from ((0, alias.name, node.lineno) for alias in node.names)
            case ast.ImportFrom():
                yield node.level, node.module or "", node.lineno
            case _:
                continue

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
    """A module that is not there, and the file and line that import it."""

    name: str
    file: Path
    line: int


def missing_modules(file: Path, roots: Sequence[Path]) -> Iterator[MissingModule]:
    """Yield the modules that importing `file` fails for, also through files below the roots.

    Only statements at the top of a module count: what stands in a function, an `if` or a `try` may
    never be imported. A file that changes `sys.path` is not judged.
    """
    waiting, judged = [file], {file}
    while waiting:
        current = waiting.pop()
        for name, line in _imports(current):
            top = name.partition(".")[0]
            own = next((path for root in roots if (path := locate(root, top))), None)
            if own is None:
                if not is_installed(top):
                    yield MissingModule(top, current, line)
            elif own.is_file() and own not in judged and len(judged) < _MOST_FILES:
                judged.add(own)
                waiting.append(own)


def is_installed(top: str) -> bool:
    """Whether Python would find a module of this name; nothing is imported to know it."""
    if top in sys.modules or top in sys.stdlib_module_names:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _imports(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the absolute names that a file imports in any case, with their lines."""
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
                yield from ((alias.name, node.lineno) for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module, node.lineno
            case _:
                continue

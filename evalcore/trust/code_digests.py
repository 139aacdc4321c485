"""Digests of the code that a suite is made of: of all Python below its root, and of named files.

Nothing is imported or followed: a change of any `.py` file below the root changes the digest of
every function, and of every command that names Python or a file. Ignored files (`.gitignore`),
hidden folders, virtual environments and installed packages do not count.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.errors import EvalError
from evalcore.model.identity import COMMAND, FILE, PYTHON
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.trust.imports import is_installed_file, locate

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})
_VIRTUAL_ENVIRONMENT: Final = "pyvenv.cfg"
_IGNORE_FILE: Final = ".gitignore"
# As many files and folders are looked at: a suite may lie in somebody's home.
_MOST_ENTRIES: Final = 100_000
_READ_BYTES: Final = 64 << 20
_SHELL_WORDS: Final = re.compile(r"[^\s;|&<>()'\"`=,]+")
# Where a shell text writes to is what a run leaves, not what the command is made of.
_SHELL_OUTPUT: Final = re.compile(
    r"""(?:[&\d]?>{1,2}\|?[ \t]*|(?<![\w./-])tee[ \t]+(?:-\w+[ \t]+)*)"""
    r"""(?:"(?=\S)[^"\n]*"|'(?=\S)[^'\n]*'|[^\s;|&<>()'"`]+)"""
)
_PYTHON: Final = re.compile(r"\bpython|\bpy(?:test|py)\b|\.pyw?\b|\bimport\b|\buvx?\b")


class CodeDigests:
    """The digests of a suite's code; for one plan, in which no file changes."""

    def __init__(self, folder: Path, current: Path | None = None) -> None:
        """Take the suite's folder and the current one, below which modules are looked for."""
        self._folder = folder.resolve()
        self._current = (current or Path.cwd()).resolve()
        self._root = repository_root(folder)
        self._found: dict[Path, frozenset[Path]] = {}

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Return the digest (hex) of each name that has code below the root."""
        digested = {name: self.digest(name) for name in sorted(set(names))}
        return {name: digest for name, digest in digested.items() if digest is not None}

    def digest(self, name: str) -> str | None:
        """Return the digest of a name of `model.code_names`; None if no file of it counts."""
        files, is_python = self._named(name)
        described = [[self._relative_name(path), _content_of(path)] for path in sorted(files)]
        if is_python and self._python:
            described.append(["", self._python_digest])
        return hashlib.sha256(orjson.dumps(described)).hexdigest() if described else None

    def _named(self, name: str) -> tuple[Set[Path], bool]:
        """Return the files that count by themselves, and whether all Python of the root does."""
        if name.startswith(PYTHON):
            module, folders = name.removeprefix(PYTHON), (self._folder, self._current)
            found = next((folder for folder in folders if locate(folder, module)), self._root)
            outside = not found.is_relative_to(self._root)
            return (self._python_of(repository_root(found)) if outside else frozenset()), True
        if name.startswith(COMMAND):
            return self._command(orjson.loads(name.removeprefix(COMMAND)))
        file = self._file(name.removeprefix(FILE).removeprefix("file://"))
        return (set(), False) if file is None else ({file}, file.suffix in {".py", ".pyw"})

    @cached_property
    def _python(self) -> frozenset[Path]:
        return self._python_of(self._root)

    def _python_of(self, root: Path) -> frozenset[Path]:
        if root not in self._found:
            self._found[root] = frozenset(python_files(root))
        return self._found[root]

    @cached_property
    def _python_digest(self) -> str:
        return _digest(self._root, self._python)

    def _relative_name(self, path: Path) -> str:
        bounds = (self._root, self._folder, self._current)
        bound = next((bound for bound in bounds if path.is_relative_to(bound)), path.parent)
        return path.relative_to(bound).as_posix()

    def _file(self, name: str, *folders: Path) -> Path | None:
        """Return the file below the root that a name means in the folder; None without one."""
        for folder in folders or (self._folder,):
            with suppress(EvalError, ValueError, OSError):
                path = resolve_inside(self._root, folder, name)
                return path if _LEFT_OUT.isdisjoint(path.parts) else None
        return None

    def _command(self, named: dict[str, Any]) -> tuple[Set[Path], bool]:
        words = named["words"]
        cwd = (self._folder / named.get("cwd", "")).resolve()
        folders = [folder for folder in (cwd, self._folder) if folder.is_relative_to(self._root)]
        candidates = {word for word in _words(words) if not word.startswith(("-", "/"))}
        found = {path for word in candidates if (path := self._file(word, *folders)) is not None}
        return found, bool(found) or any(_PYTHON.search(word) for word in words)


def _words(words: Iterable[str]) -> Iterator[str]:
    """Yield words and those within them: of a shell text, of `--file=x`, of `x.py::test`."""
    for word in words:
        yield word
        for inner in _SHELL_WORDS.findall(_SHELL_OUTPUT.sub(" ", word)):
            yield inner
            yield inner.partition("::")[0]


def digest_of_file(path: Path) -> str | None:
    """Return the digest of a Python file with the others below its root; None without a file."""
    if path.suffix != ".py" or not path.is_file():
        return None
    path = path.resolve()
    if is_installed_file(str(path)):
        return _content_of(path)
    root = repository_root(path.parent)
    described = [path.relative_to(root).as_posix(), _digest(root, python_files(root))]
    return hashlib.sha256(orjson.dumps(described)).hexdigest()


def _digest(root: Path, files: Iterable[Path]) -> str:
    described = [[path.relative_to(root).as_posix(), _content_of(path)] for path in sorted(files)]
    return hashlib.sha256(orjson.dumps(described)).hexdigest()


def python_files(root: Path) -> Iterator[Path]:
    """Yield the `.py` files below a folder that count; links to folders are not followed."""
    from pathspec import GitIgnoreSpec

    ignored: dict[Path, tuple[tuple[Path, GitIgnoreSpec], ...]] = {}
    entries = 0
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        rules = ignored.get(here.parent, ())
        if _IGNORE_FILE in names:
            with suppress(OSError, UnicodeDecodeError, ValueError):
                lines = (here / _IGNORE_FILE).read_text("utf-8").splitlines()
                rules = (*rules, (here, GitIgnoreSpec.from_lines(lines)))
        ignored[here] = rules
        entries += len(folders) + len(names)
        if entries > _MOST_ENTRIES:
            return
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _LEFT_OUT
            and not _is_ignored(rules, here / name, "/")
            and not (here / name / _VIRTUAL_ENVIRONMENT).exists()
        )
        for name in sorted(name for name in names if name.endswith(".py")):
            if not _is_ignored(rules, here / name) and (here / name).is_file():
                yield here / name


def _is_ignored(rules: Iterable[tuple[Path, GitIgnoreSpec]], path: Path, end: str = "") -> bool:
    return any(spec.match_file(f"{path.relative_to(base)}{end}") for base, spec in rules)


def _content_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file; of one beyond 64 MiB of its size and time."""
    try:
        status = path.stat()
        return _content(path, status.st_size, status.st_mtime_ns)
    except OSError:
        return ""


@lru_cache(maxsize=20_000)
def _content(path: Path, size: int, mtime_ns: int) -> str:
    data = b"%d %d" % (size, mtime_ns) if size > _READ_BYTES else path.read_bytes()
    return hashlib.sha256(data).hexdigest()

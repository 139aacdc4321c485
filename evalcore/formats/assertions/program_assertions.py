"""Assertion types that are programs: `.agentv/assertions/NAME.*` upward from the suite."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.repository import ancestors_within, find_upward, repository_root

_FOLDER: Final = ".agentv/assertions"
_NAME: Final = re.compile(r"[A-Za-z0-9][\w-]*")
_SUFFIXES: Final = (".ts", ".js", ".mts", ".mjs", ".py")
# What every assertion of a test file may say; the rest is the program's `config`.
_COMMON: Final = frozenset({"name", "weight", "required", "min_score", "negate"})


class ProgramAssertion(NamedTuple):
    """A type of assertion, and the command that grades it."""

    name: str
    command: tuple[str, ...]

    def written(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `code-grader` that an assertion of this type is."""
        common = {key: value for key, value in raw.items() if key in _COMMON}
        config = {key: value for key, value in raw.items() if key not in {*_COMMON, "type"}}
        grader = {"type": "code-grader", "command": list(self.command), "name": self.name}
        return {**grader, **common, **({"config": config} if config else {})}


def program_assertions(folder: Path) -> dict[str, ProgramAssertion]:
    """Return the types that programs define, from `folder` up to the root of its repository.

    The nearest program of a name wins. One that another user may have put there does not count.
    """
    start = folder.resolve()
    programs: dict[str, ProgramAssertion] = {}
    for ancestor in ancestors_within(start, repository_root(start)):
        for file in _files(ancestor / _FOLDER):
            name = file.stem
            if name in programs or file.suffix not in _SUFFIXES or not _NAME.fullmatch(name):
                continue
            path, _ = find_upward(ancestor, (f"{_FOLDER}/{file.name}",))
            if path is not None:
                relative_path = os.path.relpath(path, start)
                programs[name] = ProgramAssertion(name, (*_runner(file.suffix), relative_path))
    return programs


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError:  # closed to us
        return []


def _runner(suffix: str) -> tuple[str, ...]:
    """Return the command that runs a file: Bun as AgentV does; without it, Node.js."""
    if suffix == ".py":
        return ("python3",)
    return ("bun", "run") if shutil.which("bun") else ("node",)

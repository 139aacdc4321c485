"""Assertion types that are programs: `.agentv/assertions/NAME.*` and others upward."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.settings import ancestors_within, find_upward, repository_root

# In older versions of AgentV graders are called judges.
_FOLDERS: Final = (".agentv/assertions", ".agentv/graders", ".agentv/judges")
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

    Of programs with the same name one in `assertions` wins, then the nearest. One that another user
    may have put there does not count.
    """
    start = folder.resolve()
    programs: dict[str, ProgramAssertion] = {}
    for ancestor, name in _named_files(start):
        file = Path(name)
        if file.stem in programs or file.suffix not in _SUFFIXES or not _NAME.fullmatch(file.stem):
            continue
        path, _ = find_upward(ancestor, (name,))
        if path is not None:
            command = (*_runner(file.suffix), os.path.relpath(path, start))
            programs[file.stem] = ProgramAssertion(file.stem, command)
    return programs


def _named_files(start: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file of the folders for programs: where from, and its path from there."""
    ancestors = list(ancestors_within(start, repository_root(start)))
    for folder in _FOLDERS:
        for ancestor in ancestors:
            try:
                names = sorted(path.name for path in (ancestor / folder).iterdir())
            except OSError:  # not there, no folder, or closed to us
                continue
            for name in names:
                yield ancestor, f"{folder}/{name}"


def _runner(suffix: str) -> tuple[str, ...]:
    """Return the command that runs a file: Bun as AgentV does; without it, Node.js."""
    if suffix == ".py":
        return ("python3",)
    return ("bun", "run") if shutil.which("bun") else ("node",)

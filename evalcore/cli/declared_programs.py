"""Which files of programs a suite names and that are not there, with the line that names them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evalcore.cli.declared_modules import problem_of
from evalcore.errors import Problem
from evalcore.model.assertion import Assertion
from evalcore.model.suite import Suite

_TARGETS: Final = frozenset({"cli", "command"})
# What a shell does more with than start one program.
_SHELL: Final = re.compile(r"[|&;<>()$`*?~#\n\\]")
_INTERPRETER: Final = re.compile(
    r"(?:python|pypy)[\d.]*|uv|uvx|poetry|pipenv|node|npx|tsx|ts-node|bun|bunx|deno|pnpm|yarn"
    r"|bash|sh|zsh|dash|ruby|perl|php|lua|Rscript|env"
)
_SCRIPT: Final = re.compile(r".+\.(py|js|mjs|cjs|ts|mts|sh|rb|pl|php|lua|R)")
# What stands after these is code or a module.
_CODE: Final = frozenset({"-c", "-e", "-m", "-p", "--eval", "--print"})

_CHECK: Final = Assertion._fields.index("check")
_PARAMS: Final = Assertion._fields.index("params")


class _Named(NamedTuple):
    """A command as it is written, the folder that it starts in, and who names it."""

    command: str | Sequence[str]
    cwd: str
    where: str


def missing_programs(suite: Suite, file: str) -> tuple[Problem, ...]:
    """Return the files of programs that grade or answer, and that are missing.

    Nothing is started. A suite with workspaces is not judged: its hooks may write such files, and
    targets start in the workspace.
    """
    folder = Path(suite.definition.source.folder)
    missing: dict[str, tuple[_Named, str]] = {}
    for named in _commands(suite):
        program = program_file(named.command)
        if program is None or (folder / named.cwd / program).exists():
            continue
        text = named.command if isinstance(named.command, str) else program
        missing.setdefault(text, (named, program))
    if not missing or any(case.workspace for case in suite.cases):
        return ()
    return tuple(
        problem_of(file, text, named.where, _message(folder / named.cwd, program))
        for text, (named, program) in missing.items()
    )


def program_file(command: str | Sequence[str]) -> str | None:
    """Return the file that a command starts, by its path from where it starts; None if none shows.

    It is the first word if that is a relative path, else the script that an interpreter is given.
    """
    if isinstance(command, str):
        if _SHELL.search(command):
            return None
        try:
            words: Sequence[str] = shlex.split(command)
        except ValueError:
            return None
    else:
        words = command
    if not words or "=" in words[0]:
        return None
    if "/" in words[0]:
        return None if words[0].startswith("/") or "{" in words[0] else words[0]
    if _INTERPRETER.fullmatch(words[0]) is None:
        return None
    for word in words[1:]:
        if word in _CODE or "{" in word:
            return None
        if _SCRIPT.fullmatch(word) and not word.startswith(("-", "/")) and "://" not in word:
            return word
    return None


def _commands(suite: Suite) -> Iterator[_Named]:
    for name, target in suite.definition.targets.items():
        if target.kind in _TARGETS:
            yield from _of_mapping(target.options, f"target '{name}'")
            yield from _of_mapping(target.options.get("healthcheck"), f"target '{name}'")
    judged: set[int] = set()
    for case in suite.cases:
        for assertion in case.assertions:
            # Cases of one part share equal assertions.
            if id(assertion) not in judged:
                judged.add(id(assertion))
                yield from _of_check(assertion.check, assertion.params, f"case '{case.id}'")


def _of_check(check: str, params: Mapping[str, Any], where: str) -> Iterator[_Named]:
    """Yield the commands of a check; what it compares may have a `command`, too."""
    inner, fields = params.get("check"), params.get("params")
    if isinstance(inner, str) and isinstance(fields, Mapping):
        yield from _of_check(inner, fields, where)
    if check == "code-grader":
        yield from _of_mapping(params, where)
    yield from _of_mapping(params.get("aggregator"), where)
    yield from _of_mapping(params.get("prompt"), where)
    for value in params.values():
        for member in value if isinstance(value, list | tuple) else ():
            if isinstance(member, list | tuple) and len(member) > _PARAMS:
                yield from _of_member(member, where)


def _of_member(fields: Sequence[Any], where: str) -> Iterator[_Named]:
    """Yield the commands of an assertion that stands in another one as a list of its fields."""
    check, params = fields[_CHECK], fields[_PARAMS]
    if isinstance(check, str) and isinstance(params, Mapping):
        yield from _of_check(check, params, where)


def _of_mapping(value: Any, where: str) -> Iterator[_Named]:
    if not isinstance(value, Mapping):
        return
    command, cwd = value.get("command"), value.get("cwd")
    is_array = isinstance(command, list | tuple) and all(isinstance(w, str) for w in command)
    if isinstance(command, str) or (command and is_array):
        yield _Named(command, cwd if isinstance(cwd, str) else "", where)


def _message(start: Path, program: str) -> str:
    return f"there is no file '{program}' in {start}, which the command starts"

"""Code blocks of the documentation, and what they print when they are followed literally."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.fork_server import LATENCIES_ARE_EQUAL
from tests.support.shell import ROOT, Ended, evalcore

_BLOCK = re.compile(
    r"^(?:<!-- (?P<kind>\w+)(?:: (?P<argument>.*?))? -->\n)?```(?P<language>\w*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# What differs from run to run; blanks before a time align it in a table.
_VOLATILE = (
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}"), "RUN"),
    (re.compile(r"file:///.*?/\.evalcore"), "STORE"),
    (re.compile(r" *\b\d[\d,]*(?:\.\d+)? (?:ms|s)\b"), " TIME"),
)


class PageBlock(NamedTuple):
    """A code block: `kind` and `argument` of the comment before it (`<!-- file: NAME -->`)."""

    page: str
    line: int
    kind: str | None
    argument: str | None
    language: str
    text: str


def blocks_of(page: str) -> Iterator[PageBlock]:
    """Yield the code blocks of a page, which is named from the repository's root."""
    text = (ROOT / page).read_text("utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield PageBlock(page, line, **match.groupdict())


def commands_of(console: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the commands of a console block, each with the lines that it is shown to print."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        yield command, [line for line in shown if line.strip()]


def follow(page: str, folder: Path, env: dict[str, str]) -> int:
    """Do in `folder` what a page says, and return how many commands it has.

    A `file` block is written, a `run` block executed: `<!-- run: 1 -->` ends with that exit code,
    and every line that it shows is printed.
    """
    count = 0
    for block in blocks_of(page):
        if block.kind == "file":
            path = folder / str(block.argument)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.kind == "run":
            for command, shown in commands_of(block.text):
                _check(block, command, shown, folder, env)
                count += 1
    return count


def _check(
    block: PageBlock, command: str, shown: list[str], folder: Path, env: dict[str, str]
) -> None:
    program, *arguments = shlex.split(command, comments=True)
    where = f"{block.page}:{block.line}: $ {command}"
    assert program == "evalcore", where
    ended = evalcore(*arguments, cwd=folder, env={**env, **LATENCIES_ARE_EQUAL})
    assert ended.code == int(block.argument or 0), f"{where}\n{ended.out}{ended.err}"
    printed = _stable(ended)
    missing = [line for line in shown if _plain(line) not in printed]
    assert missing == [], f"{where} prints\n{ended.out}"


def _stable(ended: Ended) -> set[str]:
    return {_plain(line) for line in (ended.out + ended.err).splitlines()}


def _plain(line: str) -> str:
    for pattern, text in _VOLATILE:
        line = pattern.sub(text, line)
    return line.rstrip()

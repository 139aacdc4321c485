"""Pages of mistakes: under each heading some files, a command, and what it prints.

Under a heading without files those of the page's first heading stand. `uv run python -m
tests.support.mistake_pages` writes what the commands print now into the pages.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from evalcore.cli import main

PAGES = Path(__file__).parents[1] / "spec" / "mistakes"
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Mistake:
    """One mistake: files by name, the command's arguments, what it says on standard error."""

    page: str
    title: str
    files: Mapping[str, bytes]
    arguments: tuple[str, ...]
    printed: str


@dataclass(frozen=True)
class Answer:
    """What the command line did."""

    exit_code: int
    out: str
    err: str


def read_mistakes() -> Iterator[Mistake]:
    """Yield the mistakes of all pages, in the order of the pages."""
    for path in sorted(PAGES.glob("*.md")):
        shared: Mapping[str, bytes] = {}
        for section in path.read_text("utf-8").split("\n## ")[1:]:
            mistake = _mistake(path.stem, section)
            shared = shared or mistake.files
            yield mistake if mistake.files else _with_files(mistake, shared)


def _mistake(page: str, section: str) -> Mistake:
    title, _, body = section.partition("\n")
    files: dict[str, bytes] = {}
    command, printed = "", ""
    for kind, name, text in _BLOCK.findall(body):
        if kind == "console":
            command, _, printed = text.partition("\n")
        else:
            files[name] = _content(kind, text)
    arguments = tuple(command.removeprefix("$ evalcore").split())
    return Mistake(page, title, files, arguments, printed)


def _with_files(mistake: Mistake, files: Mapping[str, bytes]) -> Mistake:
    return Mistake(mistake.page, mistake.title, files, mistake.arguments, mistake.printed)


def _content(kind: str, text: str) -> bytes:
    """Return the bytes of a file; those of kind `bytes` are written with Python's escapes."""
    if kind != "bytes":
        return text.encode()
    return text.rstrip("\n").encode("latin-1").decode("unicode_escape").encode("latin-1")


def make(mistake: Mistake, folder: Path) -> Answer:
    """Write the files into the folder and call the command line there, in this process."""
    for name, content in mistake.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return call(mistake.arguments, folder)


def call(arguments: tuple[str, ...], folder: Path) -> Answer:
    """Call the command line; in what it prints the folder is called `/project`."""
    out, err = io.StringIO(), io.StringIO()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EVAL")}
    with (
        mock.patch.dict(os.environ, kept, clear=True),
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = main.call(arguments)
    root = str(folder.resolve())
    return Answer(
        code, out.getvalue().replace(root, "/project"), err.getvalue().replace(root, "/project")
    )


def _rewrite() -> None:
    for mistake in list(read_mistakes()):
        with TemporaryDirectory() as folder:
            answer = make(mistake, Path(folder))
        path = PAGES / f"{mistake.page}.md"
        text = path.read_text("utf-8")
        start = text.index("```console\n", text.index(f"\n## {mistake.title}\n"))
        end = text.index("\n```", start + 5)
        command = f"$ evalcore {' '.join(mistake.arguments)}".rstrip()
        printed = f"```console\n{command}\n{answer.err}".rstrip("\n")
        path.write_text(f"{text[:start]}{printed}{text[end:]}", "utf-8")


if __name__ == "__main__":
    _rewrite()

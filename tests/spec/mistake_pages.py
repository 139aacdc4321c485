"""Pages of mistakes: under each heading some files, a command, and what it prints.

`uv run python -m tests.spec.mistake_pages` writes what the commands print now into the pages.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from evalcore.cli.main import main

PAGES = Path(__file__).parent / "mistakes"
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
    """Yield the mistakes of all pages; a section without files uses those of the page's first."""
    for path in sorted(PAGES.glob("*.md")):
        first: dict[str, bytes] | None = None
        for section in path.read_text("utf-8").split("\n## ")[1:]:
            title, _, body = section.partition("\n")
            files: dict[str, bytes] = {}
            arguments, printed = "", ""
            for kind, name, text in _BLOCK.findall(body):
                if kind == "console":
                    arguments, _, printed = text.partition("\n")
                else:
                    files[name] = _content(kind, text)
            first = first if first is not None else files
            command = tuple(arguments.removeprefix("$ evalcore").split())
            yield Mistake(path.stem, title, {**first, **files} if "command-line" in path.stem else files, command, printed)


def _content(kind: str, text: str) -> bytes:
    """Return the bytes of a file; those of kind `bytes` are written with Python's escapes."""
    if kind != "bytes":
        return text.encode()
    return text.rstrip("\n").encode("latin-1").decode("unicode_escape").encode("latin-1")


def make_it(mistake: Mistake, folder: Path) -> Answer:
    """Write the files into the folder and call the command line there, in this process."""
    for name, content in mistake.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return call(mistake.arguments, folder)


def call(arguments: tuple[str, ...], folder: Path) -> Answer:
    """Call the command line; the folder's own name is `/project` in what it prints."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["evalcore", *arguments]
    try:
        with chdir(folder), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ending:
        code = ending.code
    finally:
        sys.argv = argv
    assert isinstance(code, int)
    root = str(folder.resolve())
    return Answer(code, out.getvalue().replace(root, "/project"), err.getvalue().replace(root, "/project"))


def _rewrite() -> None:
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text("utf-8")
        for mistake in read_mistakes():
            if mistake.page != path.stem:
                continue
            with TemporaryDirectory() as folder:
                answer = make_it(mistake, Path(folder))
            start = text.index(f"\n## {mistake.title}\n")
            at = text.index("```console\n", start)
            end = text.index("\n```", at + 5)
            command = f"$ evalcore {' '.join(mistake.arguments)}".rstrip()
            note = "" if answer.exit_code == 2 else f"EXIT {answer.exit_code} OUT {answer.out}\n"
            text = f"{text[:at]}```console\n{command}\n{note}{answer.err}".rstrip("\n") + text[end:]
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    os.environ.pop("EVALCORE_STORE", None)
    _rewrite()

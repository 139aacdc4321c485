"""The examples of CONTRIBUTING.md, followed literally in a copy of the package, do what it says."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.fork_server import PROGRAM
from tests.support.shell import ROOT, environment

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^<!-- (\w+)(?:: (.*?))? -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXTENSION_KINDS = {"A check", "A target", "A gate", "A report form", "A format", "A type of block"}


class Block(NamedTuple):
    """A code block, and what its comment says that it is: file, row, member, class, run."""

    kind: str
    place: str
    text: str


def blocks(example: str) -> Iterator[Block]:
    for kind, place, text in BLOCK.findall(EXAMPLES[example]):
        yield Block(kind, place, text)


def insert(path: Path, line: int, text: str, column: int) -> None:
    """Put text, indented by `column`, before a line (from 1) of a file."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    lines.insert(line - 1, textwrap.indent(text, " " * column))
    path.write_text("".join(lines), "utf-8")


def add_row(path: Path, table: str, row: str) -> None:
    """Put a row first into the mapping (or the tuple) that a module assigns to `table`."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if any(isinstance(target, ast.Name) and target.id == table for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            for literal in ast.walk(node):
                if isinstance(literal, ast.Dict | ast.Tuple | ast.List):
                    first = literal.keys[0] if isinstance(literal, ast.Dict) else literal.elts[0]
                    if first is not None and first.lineno > literal.lineno:
                        insert(path, first.lineno, row, first.col_offset)
                        return
    raise AssertionError(f"{path} has no table {table}")


def add_member(path: Path, name: str, member: str) -> None:
    """Put a statement at the end of a class."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            last = node.body[-1]
            assert last.end_lineno is not None
            insert(path, last.end_lineno + 1, member, last.col_offset)
            return
    raise AssertionError(f"{path} has no class {name}")


def apply(block: Block, copy: Path, folder: Path) -> None:
    """Do with a block what its comment says."""
    if block.kind == "file":
        path = (copy if block.place.startswith("evalcore/") else folder) / block.place
        assert not path.exists(), f"{block.place} exists"
        path.write_text(block.text, "utf-8")
    elif block.kind == "class":
        path = copy / block.place
        path.write_text(f"{path.read_text('utf-8')}\n\n{block.text}", "utf-8")
    elif " in " not in block.place:
        path = copy / block.place
        path.write_text(path.read_text("utf-8") + block.text, "utf-8")
    else:
        name, _, place = block.place.partition(" in ")
        add = {"row": add_row, "member": add_member}[block.kind]
        add(copy / place, name, block.text)


def run(command: str, copy: Path, folder: Path) -> str:
    """Return what a command of a console block prints, with the copy as the package."""
    ended = subprocess.run(
        ["/bin/sh", "-c", re.sub(r"(^|\| )evalcore\b", rf"\1{PROGRAM}", command)],
        cwd=folder,
        env=environment(folder / ".evalcore", PYTHONPATH=str(copy)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the package."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "evalcore", folder / "evalcore")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_passes_the_lint_and_does_what_the_page_shows(
    example: str, package: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(package, copy)
    commands = [block.text for block in blocks(example) if block.kind == "run"]
    changed = [block for block in blocks(example) if block.kind != "run"]
    for block in changed:
        apply(block, copy, tmp_path)
    places = {block.place.partition(" in ")[2] or block.place for block in changed}
    modules = sorted(place for place in places if place.endswith(".py"))
    for arguments in (["check"], ["format", "--check"]):
        ended = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--no-cache", *modules],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    for console in commands:
        for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            output = run(command, copy, tmp_path)
            for line in shown:
                assert line in output, f"$ {command}\n{output}"


def test_each_kind_of_extension_has_an_example() -> None:
    assert set(EXAMPLES) == EXTENSION_KINDS

"""What the pages show works: guides are followed literally, every other block is checked."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

import evalcore as package
from evalcore.cli.main import cli
from evalcore.formats.documents import parse_document
from tests.support.model_server import model_server
from tests.support.page_blocks import PageBlock, blocks_of, follow
from tests.support.shell import ROOT

FOLLOWED = [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if re.search(r"^<!-- run", path.read_text("utf-8"), re.MULTILINE)
]
PAGES = [
    "README.md",
    "deployments/README.md",
    *(
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if "decisions" not in path.parts
    ),
]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
STARTS = {";", "|", "&&", "||", "(", "--", "run", "--locked"}
# The command that a group runs if none is named.
DEFAULTS = {"history": "show"}
OPERATORS = set(";|&()<>")
SHELL = {"bash", "console", "sh"}
# Output and diagrams; what prints it is the test of its page.
SHOWN = {"", "text", "csv", "sql"}


@pytest.mark.multiprocess
@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_is_followed_literally(page: str, tmp_path: Path) -> None:
    assert follow(page, tmp_path, env={}) > 0


def test_the_cells_of_the_notebooks_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    values: dict[str, object] = {}
    for block in blocks_of("docs/guides/notebooks.md"):
        *statements, last = ast.parse(block.text).body
        shown = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
        rest = statements if shown is not None else [*statements, last]
        exec(compile(ast.Module(rest, []), block.page, "exec"), values)  # the cell
        if shown is not None:
            values["_"] = eval(compile(shown, block.page, "eval"), values)
        html = getattr(values.get("_"), "_repr_html_", None)
        assert html is None or "<" in html()
    assert values["_"] == [("long", 1.0), ("short", 0.5)]
    assert capsys.readouterr().out.startswith("roof short ['There is rain below']")


@pytest.mark.multiprocess
def test_the_readme_is_followed_literally(tmp_path: Path) -> None:
    with model_server(script=lambda question: "Lima is the capital.") as server:
        key = {"OPENAI_API_KEY": "key", "OPENAI_BASE_URL": server.base_url}
        assert follow("README.md", tmp_path, env=key) == 9


def test_each_format_has_a_page_that_is_followed() -> None:
    assert {Path(page).stem for page in FOLLOWED} >= {
        "test-file",
        "workflow-file",
        "suite",
        "script-suite",
        "saved-evals",
    }


def test_every_block_is_of_a_language_that_is_checked() -> None:
    checked = {*SHELL, *SHOWN, "json", "python", "toml", "yaml"}
    assert {block.language for block in BLOCKS} <= checked


def shell_words(text: str) -> list[str]:
    """Return the words of a command at the beginning of a text; quotes may span lines."""
    lines = text.splitlines()
    for count in range(1, len(lines) + 1):
        lexer = shlex.shlex("\n".join(lines[:count]), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            return list(lexer)
        except ValueError:
            continue
    return []


def shell_commands(block: PageBlock) -> list[str]:
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        return re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return text.splitlines()


def evalcore_arguments(words: list[str]) -> list[str] | None:
    """Return the arguments of evalcore in a command; None if it runs another program."""
    for position, word in enumerate(words):
        before = words[position - 1] if position else ";"
        if word == "evalcore" and (before in STARTS or re.match(r"\w+=", before)):
            after = words[position + 1 :]
            end = next((at for at, each in enumerate(after) if set(each) <= OPERATORS), len(after))
            return after[:end]
    return None


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that words of a shell name, and its arguments."""
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        context = click.Context(command)
        found = command.get_command(context, words[0])
        if found is None:
            default = command.get_command(context, DEFAULTS.get(str(command.name), ""))
            return (command, words) if default is None else (default, words)
        command, words = found, words[1:]
    return command, words


def test_the_commands_that_pages_show_exist_with_their_flags() -> None:
    blocks = [block for block in BLOCKS if block.language in SHELL]
    for text in (text for block in blocks for text in shell_commands(block)):
        arguments = evalcore_arguments(shell_words(text))
        if arguments is None:
            continue
        command, arguments = command_of(arguments)
        assert command is not cli or not arguments or arguments[0].startswith("-"), text
        flags = {
            flag for option in command.params for flag in (*option.opts, *option.secondary_opts)
        }
        used = {word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)}
        assert used <= {*flags, "--help"}, text


def test_the_python_that_pages_show_is_python_and_imports_what_there_is() -> None:
    for block in (block for block in BLOCKS if block.language == "python"):
        for node in ast.walk(ast.parse(block.text, block.page)):
            if isinstance(node, ast.ImportFrom) and node.module == "evalcore":
                assert all(hasattr(package, alias.name) for alias in node.names), block.text


def test_the_data_that_pages_show_can_be_read() -> None:
    for block in BLOCKS:
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "yaml":
            parse_document(block.text.encode(), block.page)

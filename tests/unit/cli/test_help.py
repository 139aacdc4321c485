"""`evalcore --help` and the examples that the help of each command ends with."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from evalcore.cli import contributed
from evalcore.cli.examples import EXAMPLES
from evalcore.cli.main import COMMANDS, SECTIONS, cli


def command_paths(command: click.Command, path: str = "") -> Iterator[str]:
    """Yield the words of each command that does something."""
    if not isinstance(command, click.Group):
        yield path
        return
    if command.invoke_without_command:
        yield path
    for name in command.list_commands(click.Context(command)):
        member = command.get_command(click.Context(command), name)
        assert member is not None
        yield from command_paths(member, f"{path} {name}".strip())


def parse(line: str) -> str:
    """Parse a command line as evalcore does; return the words of its command."""
    program, *arguments = shlex.split(re.split(r" [<>|] ", line)[0])
    assert program == "evalcore"
    context = cli.make_context(program, arguments)
    words: list[str] = []
    while isinstance(context.command, click.Group) and (
        rest := [*context._protected_args, *context.args]
    ):
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        words.append(str(name))
        context = command.make_context(name, rest, parent=context)
    return " ".join(words)


def test_every_command_has_an_example_and_no_other_has() -> None:
    assert set(EXAMPLES) == set(command_paths(cli))


def test_every_example_parses_as_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in (word for example in EXAMPLES.values() for word in shlex.split(example)):
        if re.fullmatch(r"[\w.]+\.(?:json|jsonl|yaml|csv)", word):
            Path(word).touch()  # some commands look whether their file exists
    assert {path: parse(example) for path, example in EXAMPLES.items()} == {
        path: path for path in EXAMPLES
    }


def test_an_example_with_an_unknown_flag_does_not_parse() -> None:
    with pytest.raises(click.NoSuchOption):
        parse("evalcore run a.yaml --reused")


def test_the_help_of_a_command_ends_with_its_example() -> None:
    command = cli.get_command(click.Context(cli), "compare")
    assert command is not None
    with click.Context(command, info_name="compare") as context:
        assert command.get_help(context).endswith(EXAMPLES["compare"])


def test_the_help_lists_each_command_once_below_its_section() -> None:
    with click.Context(cli, info_name="evalcore") as context:
        lines = cli.get_help(context).splitlines()
    titles = (*SECTIONS, "Commands of installed packages")
    positions = [lines.index(f"{title}:") for title in titles]
    assert positions == sorted(positions)
    names = [line.split()[0] for line in lines[positions[0] :] if re.match(r"  \w", line)]
    assert names == [*COMMANDS, *contributed.command_names()]

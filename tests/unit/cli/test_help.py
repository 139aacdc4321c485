"""`evalcore --help` and the help of each command."""

from __future__ import annotations

import re

import click
import pytest

from evalcore.cli.main import COMMANDS, SECTIONS, cli


def help_of(name: str) -> str:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    with click.Context(command, info_name=name) as context:
        return command.get_help(context)


def test_the_help_lists_each_command_once_below_its_section() -> None:
    with click.Context(cli, info_name="evalcore") as context:
        lines = cli.get_help(context).splitlines()
    positions = [lines.index(f"{title}:") for title in SECTIONS]
    assert positions == sorted(positions)
    names = [line.split()[0] for line in lines[positions[0] :] if re.match(r"  \w", line)]
    assert names == [*COMMANDS]
    assert {"serve", "dev", "deploy"} <= SECTIONS["Serve"].keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_of_the_table_is_one(name: str) -> None:
    assert help_of(name).startswith("Usage:")


@pytest.mark.parametrize("name", ["run", "record"])
def test_every_flag_of_a_run_is_in_one_group(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    shown = help_of(name)
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert len(re.findall(rf"(?<![\w-]){option.opts[-1]}(?![\w-])", shown)) >= 1, option
    titles = ("Choose:", "Decide:", "Execute:", "Report:")
    assert [line for line in shown.splitlines() if line in titles] == [*titles]

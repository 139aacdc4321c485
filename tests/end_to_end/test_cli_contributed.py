"""Commands that installed packages contribute through the group `evalcore.commands`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EVALCORE = str(Path(sys.executable).with_name("evalcore"))
COMMAND = """\
import click

@click.command()
@click.argument("name")
def greet(name):
    "Say hello to somebody."
    click.echo(f"hello {name}")
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with an installed package that contributes `greet`, and one that is broken."""
    info = tmp_path / "greeting-1.0.dist-info"
    info.mkdir()
    entries = "[console_scripts]\nx = y:z\n\n[evalcore.commands]\ngreet = greeting:greet\n"
    (info / "entry_points.txt").write_text(
        entries + "broken = no_such_module:x\nrun = greeting:z\n"
    )
    (tmp_path / "greeting.py").write_text(COMMAND)
    return tmp_path


def call(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [EVALCORE, *arguments],
        env=os.environ | {"PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_contributed_command_is_called(packages: Path) -> None:
    ended = call(packages, "greet", "world")
    assert (ended.returncode, ended.stdout) == (0, "hello world\n")


def test_help_lists_contributed_commands_with_what_they_do(packages: Path) -> None:
    ended = call(packages, "--help")
    assert ended.returncode == 0
    assert "greet   Say hello to somebody." in ended.stdout
    assert "broken  (cannot be imported" in ended.stdout
    for name in ("deploy", "dev"):
        assert f"\n  {name}  " in ended.stdout


def test_a_command_that_cannot_be_imported_is_told_without_a_traceback(packages: Path) -> None:
    ended = call(packages, "broken")
    assert ended.returncode != 0
    assert "no_such_module" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_package_does_not_replace_evalcores_own_command(packages: Path) -> None:
    shown = call(packages, "run", "--help").stdout
    assert "Run suites one after another" in shown


def test_a_contributed_command_is_the_nearest_to_a_wrong_one(packages: Path) -> None:
    assert "Did you mean 'greet'?" in call(packages, "gret").stderr

"""What the command line says of a fault that nothing foresees (docs/reference/command-line.md)."""

from __future__ import annotations

import click
import pytest

from evalcore.cli.main import call
from evalcore.errors import ExitCode


def raising(error: BaseException) -> click.Command:
    def command() -> None:
        raise error

    return click.Command("raising", callback=command)


@pytest.mark.parametrize("error", [ValueError("lost"), EOFError("lost"), RecursionError("lost")])
def test_a_fault_is_told_by_its_name(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([], raising(error)) == ExitCode.ERRORS
    said = capsys.readouterr().err
    assert f"unexpected fault: {type(error).__name__}: lost" in said
    assert "aborted" not in said


@pytest.mark.parametrize("error", [ValueError("lost"), EOFError("lost")])
def test_the_place_of_a_fault_is_shown_to_who_asks(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_TRACEBACK", "1")
    with pytest.raises(type(error)) as raised:
        call([], raising(error))
    assert raised.traceback[-1].name == "command"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_aborts(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([], raising(error)) == ExitCode.ERRORS
    assert capsys.readouterr().err.strip() == "evalcore: aborted"

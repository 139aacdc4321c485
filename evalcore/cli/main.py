"""The entry point: the table of commands, each imported only when it is called."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from evalcore.cli import contributed
from evalcore.cli.examples import with_examples
from evalcore.errors import DamagedRunError, EvalError, ExitCode, UsageError
from evalcore.version import VERSION
from evalcore.wording import is_unicode

SECTIONS = {
    "Start": {
        "init": ("evalcore.cli.start:init", "Write a small suite that runs at once."),
        "import": (
            "evalcore.cli.start:import_command",
            "Write a file of promptfoo, Inspect AI and others as a suite.",
        ),
        "validate": ("evalcore.cli.check:validate", "Check suite files; run nothing."),
        "plan": ("evalcore.cli.check:plan", "Show what a run would execute; run nothing."),
        "schema": ("evalcore.cli.start:schema", "Print the JSON Schema of a format, for editors."),
    },
    "Run": {
        "run": ("evalcore.cli.run:run", "Run suites and decide."),
        "record": ("evalcore.cli.run:record", "Run suites and record what providers answer."),
    },
    "Look": {
        "view": ("evalcore.cli.serve:view", "Show runs in the browser."),
        "report": ("evalcore.cli.report:report", "Show the report of a completed run."),
        "compare": ("evalcore.cli.report:compare", "Compare two completed runs."),
        "runs": ("evalcore.cli.runs:runs", "List runs and look at one."),
        "history": ("evalcore.cli.history:history", "Look back over the runs of a suite."),
        "query": ("evalcore.cli.history:query", "Ask the history by SQL, read-only."),
    },
    "Judge": {
        "regrade": ("evalcore.cli.running:regrade", "Grade a run's stored evidence again."),
        "annotate": ("evalcore.cli.people:annotate", "Answer what a run asks people."),
        "annotations": (
            "evalcore.cli.people:annotations_",
            "Export, import labels; agreement of annotators.",
        ),
        "judge": ("evalcore.cli.people:judge", "Look at the quality of judges."),
        "assert": (
            "evalcore.cli.grade:assert_",
            "Grade single outputs: JSON lines in and out.",
        ),
        "decide": ("evalcore.cli.grade:decide", "Decide single gates: JSON lines in and out."),
    },
    "Keep": {
        "baseline": ("evalcore.cli.keep:baseline", "Name runs that others are compared with."),
        "quarantine": ("evalcore.cli.keep:quarantine", "Keep cases from gating until a day."),
        "dataset": (
            "evalcore.cli.dataset:dataset",
            "Keep cases from files and real usage in versions.",
        ),
        "recordings": ("evalcore.cli.keep:recordings", "Look at recordings and move them."),
        "workspaces": (
            "evalcore.cli.keep:workspaces",
            "Show workspaces, remove what is left.",
        ),
        "compact": ("evalcore.cli.keep:compact", "Make the history's small files large ones."),
    },
    "Serve": {
        "serve": ("evalcore.cli.serve:serve", "Serve saved evals over REST."),
        "evals": ("evalcore.cli.serve:evals", "Create, list, run saved evals of a service."),
        "mcp": ("evalcore.cli.serve:mcp", "Serve saved evals as MCP tools over stdio."),
        "tokens": ("evalcore.cli.serve:tokens", "Create, list, revoke tokens of the service."),
    },
}
COMMANDS = {name: row for rows in SECTIONS.values() for name, row in rows.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when help lists them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table, then what packages contribute."""
        return [*COMMANDS, *contributed.command_names()]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            command_of_package = contributed.find_command(cmd_name)
            return command_of_package and with_examples(command_of_package, cmd_name)
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return with_examples(command, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; what is wrong with a damaged run is also told as JSON if it asks."""
        try:
            return super().invoke(ctx)
        except DamagedRunError as error:
            from evalcore.cli.options import AS_JSON
            from evalcore.report.registry import damaged_json

            if ctx.meta.get(AS_JSON):
                click.echo(damaged_json(error), nl=False)
            raise

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of the table without importing anything of it."""
        width = max(map(len, COMMANDS))
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:{width}}", about) for name, (_, about) in rows.items()]
                )
        plugin_rows = [row for row in contributed.described_commands() if row[0] not in COMMANDS]
        if plugin_rows:
            with formatter.section("Commands of installed packages"):
                formatter.write_dl(plugin_rows)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Name the nearest command for an unknown one."""
        from evalcore.wording import nearest

        if args and args[0] not in COMMANDS and args[0] not in contributed.command_names():
            command = nearest(args[0], self.list_commands(ctx))
            if command is None and "." in args[0]:
                command = f"run {args[0]}"
            hint = f" Did you mean '{command}'?" if command else ""
            ctx.fail(f"no such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="evalcore")
def cli() -> None:
    """Evaluate LLM workflows: cases × variants × iterations, and gates over the results."""
    if not {"-h", "--help"}.isdisjoint(sys.argv):
        return
    from evalcore.settings import ignored_settings

    with suppress(FileNotFoundError):  # the current folder is gone: the command says what it needs
        for reason in ignored_settings(Path.cwd()):
            click.echo(f"warning: {reason}", err=True)


COMPLETE_VARIABLE = "_EVALCORE_COMPLETE"
"""Set by the shell's completion function (docs/reference/command-line.md)."""

# What an orchestrator in this process may take to end; what it had to send was sent with its run.
_TEARDOWN_S = 0.8


def main() -> None:
    """Call the command line with the process's arguments and end the process."""
    if sys.platform == "win32":
        click.echo("evalcore runs on Linux and macOS; on Windows use it in WSL 2", err=True)
        sys.exit(ExitCode.USAGE)
    # Runs make millions of objects and hardly a cycle; the default looks for those all the time.
    gc.set_threshold(100_000, 50, 50)
    _replace_closed_streams()
    from evalcore.redaction.redactor import redact_standard_streams

    redact_standard_streams()
    if COMPLETE_VARIABLE in os.environ:
        from evalcore.cli.completion import register_shells

        register_shells()
    leave(call())


def _replace_closed_streams() -> None:
    """Let the standard streams that the caller has closed lead nowhere.

    Python has None for them, and their descriptors would be those of the next files.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode)  # noqa: SIM115 - as long as the process
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def call(arguments: Sequence[str] | None = None, command: click.Command | None = None) -> int:
    """Call the command line; print a mistake as one message; return the exit code.

    The arguments are those of the process by default, the command is all of evalcore.
    """
    code: int | None
    output = sys.stdout
    try:
        _check_texts(sys.argv[1:] if arguments is None else arguments)
        code = (command or cli).main(arguments, prog_name="evalcore", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        # To click the end of any input aborts the command; at a question it gives no cause.
        if isinstance(error.__cause__, EOFError):
            code = _tell_fault(error.__cause__)
        else:
            click.echo("evalcore: aborted", err=True)
            code = ExitCode.ERRORS
    except click.ClickException as error:
        show_usage_error(error)
        code = ExitCode.USAGE
    except EvalError as error:
        show_error(error)
        code = error.exit_code
    except click.exceptions.Exit as error:
        code = error.exit_code
    except SystemExit:
        # Where the reader of the output has closed the pipe click replaces the stream, and exits
        # with the code of a failed gate.
        if sys.stdout is output:
            raise
        code = ExitCode.ERRORS
    # A fault of ours must not look like a failed gate, whose exit code Python's own is.
    except Exception as error:  # noqa: BLE001 - told, or raised again
        code = _tell_fault(error)
    return int(code or 0)


def _tell_fault(error: Exception) -> int:
    """Say what went wrong without being foreseen; return the exit code."""
    if os.environ.get("EVALCORE_TRACEBACK"):
        from evalcore.redaction.redactor import cover_exception

        cover_exception(error)
        raise error
    mistake = _name_mistake(error)
    show_error(mistake or _output_fault(error) or _unexpected(error))
    return ExitCode.ERRORS if mistake is None else mistake.exit_code


def _unexpected(error: Exception) -> EvalError:
    what = f"{type(error).__name__}: {error}"
    hint = "EVALCORE_TRACEBACK=1 shows where; `evalcore runs list` shows runs to resume"
    return EvalError(f"evalcore: unexpected fault: {what}\n({hint})")


def _output_fault(error: Exception) -> EvalError | None:
    """Return the mistake of a standard output that takes no more; None if it is another one."""
    from evalcore.redaction.redactor import OUTPUT

    if not isinstance(error, OSError) or error.filename != OUTPUT:
        return None
    return EvalError(
        f"cannot write to standard output: {error.strerror} (what was stored is kept: `evalcore "
        "report` shows a run again)"
    )


def _name_mistake(error: Exception) -> UsageError | None:
    """Return the mistake of a path that no file system can hold; None if it is another one."""
    from evalcore.wording import QUOTED_LENGTH, shorten

    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return None
    return UsageError(f"{shorten(str(error.filename), QUOTED_LENGTH)}: {error.strerror}")


def _check_texts(arguments: Sequence[str]) -> None:
    """Raise `UsageError` for an argument or a setting with bytes that are no text.

    Nothing can store them.
    """
    named = [(f"'{argument}'", argument) for argument in arguments]
    # A setting may be a secret, so it is not shown.
    named += [(name, text) for name, text in os.environ.items() if name.startswith("EVALCORE_")]
    for name, text in named:
        if not is_unicode(text):
            raise UsageError(
                f"{name} is not UTF-8; write it anew (if it is, the locale is not: set "
                "PYTHONUTF8=1)"
            )


def leave(code: int) -> NoReturn:
    """End the process: what is registered for the end runs, the interpreter is not torn down.

    Tearing it down (all modules, a database without anything in it) takes a fifth of a small run.
    An orchestrator in this process has `_TEARDOWN_S` for it: a server that does not answer any more
    must not keep a process whose report is printed.
    """
    if "prefect" in sys.modules:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        timer = threading.Timer(_TEARDOWN_S, os._exit, (code,))
        timer.daemon = True
        timer.start()
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def show_usage_error(error: click.ClickException) -> None:
    """Print what click says of the command line; what was typed is shown safe for a terminal."""
    from evalcore.redaction.redactor import PROCESS
    from evalcore.trust.text import sanitize_terminal

    output = io.StringIO()
    error.show(output)
    click.echo(sanitize_terminal(PROCESS.message(output.getvalue())), nl=False, err=True)


def show_error(error: EvalError) -> None:
    """Print a message for a person to standard error, safe for a terminal and without secrets."""
    from evalcore.redaction.redactor import PROCESS
    from evalcore.trust.text import sanitize_terminal

    click.echo(sanitize_terminal(PROCESS.message(str(error))), err=True)

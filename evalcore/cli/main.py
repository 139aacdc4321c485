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
from typing import TYPE_CHECKING, Any, NoReturn

import click

from evalcore.errors import DamagedRunError, EvalError, ExitCode, UsageError
from evalcore.version import VERSION
from evalcore.wording import is_unicode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS = {
    "Start": {
        "init": ("start:init", "Write a small suite that runs at once."),
        "import": ("start:import_command", "Convert files of promptfoo, Inspect AI and others."),
        "validate": ("check:validate", "Check suite files; run nothing."),
        "plan": ("check:plan", "Show what a run would execute; run nothing."),
        "schema": ("start:schema", "Print the JSON Schema of a format, for editors."),
    },
    "Run": {
        "run": ("run:run", "Run suites and decide."),
        "record": ("run:record", "Run suites and record the replies of providers."),
    },
    "Look": {
        "view": ("serve:view", "Show runs in the browser."),
        "report": ("report:report", "Show the report of a completed run."),
        "compare": ("report:compare", "Compare two completed runs."),
        "runs": ("runs:runs", "List, show, watch, verify, cancel, delete runs."),
        "history": ("history:history", "Show the trend of a suite, a case over time, flaky cases."),
        "query": ("history:query", "Query run history with SQL."),
    },
    "Judge": {
        "regrade": ("running:regrade", "Grade a run's stored evidence again."),
        "annotate": ("people:annotate", "Answer the questions of a run."),
        "annotations": ("people:annotations_", "Export and import labels."),
        "judge": ("people:judge", "Compare a judge with the labels of people."),
        "assert": ("grade:assert_", "Grade single outputs: JSON lines in and out."),
        "decide": ("grade:decide", "Decide single gates: JSON lines in and out."),
    },
    "Keep": {
        "baseline": ("keep:baseline", "Manage baselines."),
        "quarantine": ("keep:quarantine", "Exclude flaky cases from gates until a date."),
        "dataset": ("dataset:dataset", "Manage cases from files and real usage, in versions."),
        "recordings": ("keep:recordings", "Look at recordings and move them."),
        "compact": ("keep:compact", "Compact history files; drop old results."),
    },
    "Serve": {
        "serve": ("serve:serve", "Serve saved evals over REST."),
        "dev": ("evalcore.prefect.dev:dev", "Start Prefect, a worker and the service here."),
        "deploy": ("evalcore.prefect.deploy:deploy", "Register deployments with a Prefect server."),
        "evals": ("serve:evals", "Create, list, run saved evals of a service."),
        "mcp": ("serve:mcp", "Serve saved evals as MCP tools over stdio."),
        "tokens": ("serve:tokens", "Create, list, revoke tokens of the service."),
    },
}
"""The commands by the headings of `evalcore --help`: where each one is defined, what it does."""
COMMANDS = {name: row for rows in SECTIONS.values() for name, row in rows.items()}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called, not when help lists them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the commands in the order of the table."""
        return [*COMMANDS]

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = import_module(module if "." in module else f"evalcore.cli.{module}")
        command: click.Command = getattr(found, name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Call the command; with `--json`, damage of a run is also printed as JSON."""
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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Name the nearest command for an unknown one."""
        from evalcore.wording import nearest

        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            command = nearest(args[0], self.list_commands(ctx))
            if command is None and "." in args[0]:
                command = f"run {args[0]}"
            hint = f" Did you mean '{command}'?" if command else ""
            ctx.fail(f"no such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin so without importing any."""
        from click.shell_completion import CompletionItem

        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)] + options


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
        show_error(error)
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
    """Print what nothing foresaw as one message; return the exit code."""
    from evalcore.redaction.redactor import OUTPUT, cover_exception
    from evalcore.wording import QUOTED_LENGTH, shorten

    if os.environ.get("EVALCORE_TRACEBACK"):
        cover_exception(error)
        raise error
    mistake = EvalError(
        f"evalcore: unexpected fault: {type(error).__name__}: {error}\n(EVALCORE_TRACEBACK=1 shows "
        "where; `evalcore runs list` shows runs to resume)"
    )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        mistake = UsageError(f"{shorten(str(error.filename), QUOTED_LENGTH)}: {error.strerror}")
    elif isinstance(error, OSError) and error.filename == OUTPUT:
        mistake = EvalError(
            f"cannot write to standard output: {error.strerror} (what was stored is kept: "
            "`evalcore report` shows a run again)"
        )
    show_error(mistake)
    return ExitCode.USAGE if isinstance(mistake, UsageError) else ExitCode.ERRORS


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


def show_error(error: EvalError | click.ClickException) -> None:
    """Print a message to standard error, safe for a terminal and without secrets."""
    from evalcore.redaction.redactor import PROCESS
    from evalcore.trust.text import sanitize_terminal

    message = f"{error}\n"
    if isinstance(error, click.ClickException):
        output = io.StringIO()
        error.show(output)
        message = output.getvalue()
    click.echo(sanitize_terminal(PROCESS.message(message)), nl=False, err=True)

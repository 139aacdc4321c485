"""The flags of `evalcore run` and `record`; `--help` does not import `cli/running.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from evalcore.cli.options import (
    RunName,
    debug_option,
    ended_by_interrupt,
    export_option,
    import_option,
    json_option,
    log_option,
    mode_option,
    settings,
    store_option,
    suite_options,
    verbose_option,
)
from evalcore.errors import UsageError
from evalcore.isolation.mode import Isolation
from evalcore.model.mode import HISTORY, Mode

_WORDS: Final = "evalcore.words"
_MOST_WORKERS: Final = 64
_MOST_NAMES: Final = 5
_GROUPS: Final = {
    "Choose": "format_ script target variants cases tags excluded failed resume",
    "Decide": "gates baseline threshold iterations stop_when_decided strict",
    "Execute": "mode reuse watch concurrency workers prefect runner isolation imports "
    "keep_workspace",
    "Report": "as_json verbose detail forms exports store log_format debug help",
}
"""The headings of `--help`, and the parameters below each."""


class _Workers(click.ParamType[Any]):
    """A number of worker processes; None for `auto`."""

    name = "N|auto"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "auto":
            return None
        if not str(value).isdecimal() or not 1 <= int(value) <= _MOST_WORKERS:
            reason = f"'{value}' is neither auto nor a number from 1 to {_MOST_WORKERS}"
            self.fail(reason, param, ctx)
        return int(value)


class _RunCommand(click.Command):
    """A command with its flags in groups. Each round of a watch is called with its words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the words and parse them."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags below the headings of their groups."""
        rows = {each.name: each.get_help_record(ctx) for each in self.get_params(ctx)}
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([row for name in names.split() if (row := rows.get(name))])


def _report_forms(_ctx: click.Context, _option: click.Parameter, text: str | None) -> Any:
    if not text:
        return ()
    from evalcore.report.registry import parse_forms

    try:
        return parse_forms(text)
    except UsageError as error:
        raise UsageError(f"--report: {error}") from error


@click.command(cls=_RunCommand)
@suite_options
@click.option(
    "--resume", type=RunName(), metavar="RUN", help="Continue a run; takes no suite file."
)
@click.option(
    "--failed", type=RunName(), metavar="RUN", help="Only cases that did not pass in this run."
)
@mode_option
@click.option(
    "--reuse",
    flag_value=HISTORY,
    help="Reuse results of unchanged items from the last 20 runs.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Run again with --reuse when a file changes here or beside a suite.",
)
@click.option("--prefect", is_flag=True, help="Execute through Prefect.")
@click.option(
    "--runner",
    metavar="RUNNER",
    help="With --prefect: what executes the tasks: threads, dask, ray.  [threads]",
)
@click.option(
    "--workers",
    type=_Workers(),
    metavar="N|auto",
    help="Processes that share the run; auto: one for each core where many items wait for nothing, "
    "else none besides this one.  [auto]",
)
@click.option(
    "--report",
    "forms",
    metavar="FORM,…",
    callback=_report_forms,
    help="Also store these forms: html, junit, markdown, github.",
)
@export_option
@click.option(
    "--keep-workspace",
    is_flag=True,
    help="Keep test workspaces.",
)
@import_option
@click.option(
    "--isolation",
    type=click.Choice([str(each) for each in Isolation]),
    help="Where the suite's Python runs: worker processes, or this one.  [process]",
)
@click.option(
    "--detail",
    is_flag=True,
    help="Of script suites also each iteration: scores, errors, intervals.",
)
@debug_option
@log_option
@store_option
@json_option
@verbose_option
def run(**flags: Any) -> int:
    """Run suites one after another; the exit code is the worst decision's.

    0 every gate passed, 1 a gate failed, 2 a suite does not load, 3 inconclusive, 4 errors
    prevented the decision or the run was stopped. An interrupt ends --watch with 130.
    """
    if flags.pop("watch"):
        _watch(flags, click.get_current_context().meta[_WORDS])
    from evalcore.cli.running import run_command

    return int(run_command(flags))


def _watch(flags: dict[str, Any], words: Sequence[str]) -> NoReturn:
    """Run at once and after each change, in a process of its own each time, until interrupted."""
    from watchfiles import DefaultFilter, watch

    from evalcore.cli.output import say

    if flags["resume"] is not None:
        raise UsageError("--watch runs suite files; it takes no --resume")
    if not flags["suites"]:
        raise UsageError("name at least one suite file: evalcore run SUITE… --watch")
    folders = {Path.cwd(), *(Path(suite).resolve().parent for suite in flags["suites"])}
    written = [Path(flags["store"] or settings().store), *flags["exports"]]
    watched = DefaultFilter(ignore_paths=[path.resolve() for path in written])
    flags_of_rounds = [word for word in words if word != "--watch"]
    command = [sys.executable, "-P", "-m", "evalcore", "run", "--reuse", *flags_of_rounds]
    with ended_by_interrupt():
        while True:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            try:
                process.wait()
            except KeyboardInterrupt:
                process.wait()  # a terminal interrupts it, too: it stores what it has
                raise
            click.echo("watching; Ctrl-C ends", err=True)
            changes = next(watch(*folders, watch_filter=watched, ignore_permission_denied=True))
            names = sorted(os.path.relpath(path) for _, path in changes)
            say(f"{', '.join(names[:_MOST_NAMES])} changed", err=True)


_RECORD_FLAGS: Final = {"mode": Mode.RECORD.value, "resume": None, "watch": False}


def _record(**flags: Any) -> Any:
    return run.callback(**flags, **_RECORD_FLAGS) if run.callback is not None else None


record = _RunCommand(
    "record",
    callback=_record,
    params=[parameter for parameter in run.params if parameter.name not in _RECORD_FLAGS],
    help="""Run suites with real calls, and record what the providers answer.

    The same as `evalcore run --mode record`. `evalcore run --mode replay` then repeats the run
    without a provider.
    """,
)

"""`evalcore run`: its options. What it does is `cli/running.py`, which `--help` does not import."""

from __future__ import annotations

from typing import Any

import click

from evalcore.cli.options import (
    debug_option,
    export_option,
    import_option,
    json_option,
    log_option,
    mode_option,
    store_option,
    suite_options,
    verbose_option,
    workspace_option,
)
from evalcore.isolation.mode import ISOLATIONS
from evalcore.model.mode import Mode

_WORDS = "evalcore.words"
_WATCH_HELP = "Run again when a file changes that the run is made from, with --reuse."
_RUNNER_HELP = "With --prefect: what executes the tasks: threads, dask, ray.  [threads]"
_WORKERS_HELP = (
    "Processes that share the run; auto: one for each core where many items wait for nothing, else "
    "none besides this one.  [auto]"
)
_ISOLATION_HELP = "Where the suite's Python runs: worker processes, or this one.  [process]"
_DETAIL_HELP = "Of script suites also each iteration: scores, errors, intervals."
_REPORT_HELP = "Also store these forms: html, junit, markdown, github."


_MOST_WORKERS = 64


class _WorkersType(click.ParamType[Any]):
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
    """Keeps its words as they are written: each round of a watch is called with them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the words and parse them."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(cls=_RunCommand)
@suite_options
@click.option("--resume", metavar="RUN", help="Go on with a run; takes no suite file.")
@click.option("--failed", metavar="RUN", help="Only cases that did not pass in this run.")
@mode_option
@click.option("--reuse", is_flag=True, help="Do not execute what the last 20 runs did.")
@click.option("--watch", is_flag=True, help=_WATCH_HELP)
@click.option("--prefect", is_flag=True, help="Execute through Prefect.")
@click.option("--runner", metavar="RUNNER", help=_RUNNER_HELP)
@click.option("--workers", type=_WorkersType(), help=_WORKERS_HELP)
@click.option("--report", "forms", metavar="FORM,…", help=_REPORT_HELP)
@export_option
@workspace_option
@import_option
@click.option("--isolation", type=click.Choice(ISOLATIONS), help=_ISOLATION_HELP)
@click.option("--detail", is_flag=True, help=_DETAIL_HELP)
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
        from evalcore.cli.watch import watch_command

        return watch_command(flags, click.get_current_context().meta[_WORDS])
    from evalcore.cli.running import run_command

    return int(run_command(flags))


_RECORD_FLAGS = {"mode": Mode.RECORD.value, "resume": None, "watch": False}
_HELP = """Run suites with real calls, and record what the providers answer.

The same as `evalcore run --mode record`. `evalcore run --mode replay` then repeats the run
without a provider.
"""


def _record(**flags: Any) -> Any:
    return run.callback(**flags, **_RECORD_FLAGS) if run.callback is not None else None


record = click.Command(
    "record",
    callback=_record,
    params=[parameter for parameter in run.params if parameter.name not in _RECORD_FLAGS],
    help=_HELP,
)

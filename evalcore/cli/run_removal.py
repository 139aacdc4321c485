"""`evalcore runs delete` and `evalcore runs prune`: shown first, done with `--yes`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click
import orjson

from evalcore.cli.ages import Age
from evalcore.cli.fresh_history import refresh
from evalcore.cli.options import chosen_store, json_option, store_option
from evalcore.cli.showing import one_line
from evalcore.errors import ExitCode, UsageError
from evalcore.report.document import on_one_line
from evalcore.storage.run_names import choose_run
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.pipeline.removal import Progress, Removal

_YES_HELP: Final = "Delete them; without it they are only listed."


@click.command("delete")
@click.argument("run_names", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help=_YES_HELP)
@store_option
@json_option
def delete_command(run_names: tuple[str, ...], yes: bool, store: str | None, as_json: bool) -> int:
    """Delete runs with their plans, results and reports; their rows in the history stay.

    If a run has to stay (a baseline, a run that another one was compared with, a running one)
    nothing is deleted and the exit code is 2.
    """
    from evalcore.pipeline.removal import plan_deletion

    opened = chosen_store(store)
    runs = {run.run_id: run for run in (choose_run(opened, name) for name in run_names)}
    refresh(opened)
    removals = plan_deletion(opened, list(runs.values()), now=datetime.now(UTC))
    stays = [removal for removal in removals if removal.reason]
    if stays:
        reasons = "; ".join(f"{removal.run.run_id}: {removal.reason}" for removal in stays)
        raise UsageError(f"nothing is deleted: {reasons}")
    return _finish(removals, yes=yes, as_json=as_json)


@click.command("prune")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Keep the newest N a suite.")
@click.option("--older-than", type=Age(), metavar="AGE", help="Only runs older than: 90d, 12h, 2w.")
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option("--yes", is_flag=True, help=_YES_HELP)
@store_option
@json_option
def prune_command(
    keep: int | None,
    older_than: timedelta | None,
    suite: str | None,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Delete old runs; their rows in the history stay.

    Baselines stay, and what the history does not have: damaged runs, interrupted ones. With both
    --keep and --older-than a run has to be beyond both.
    """
    from evalcore.pipeline.removal import PruneRule, plan_prune

    if keep is None and older_than is None:
        raise UsageError("say which runs are old: --keep N or --older-than 90d")
    opened, now = chosen_store(store), datetime.now(UTC)
    refresh(opened)
    rule = PruneRule(keep, None if older_than is None else now - older_than)
    return _finish(plan_prune(opened, rule, suite=suite, now=now), yes=yes, as_json=as_json)


def _finish(removals: tuple[Removal, ...], *, yes: bool, as_json: bool) -> int:
    """Delete the runs if that was confirmed; print what went, or what would."""
    from evalcore.pipeline.removal import remove_runs

    if yes:
        remove_runs(removals, _progress(as_json=as_json))
    going = [removal for removal in removals if not removal.reason]
    if as_json:
        document = {
            "deleted": yes,
            "runs": [removal.run.run_id for removal in going],
            "kept": [
                {"run": removal.run.run_id, "reason": removal.reason}
                for removal in removals
                if removal.reason
            ],
        }
        click.echo(on_one_line(orjson.dumps(document).decode()))
        return int(ExitCode.PASS)
    for removal in removals:
        verb = "stays " if removal.reason else "delete" if not yes else "gone  "
        reason = f"  ({removal.reason})" if removal.reason else ""
        click.echo(one_line(f"{verb}  {removal.run.run_id}  {removal.suite}{reason}"))
    count = counted(len(going), "run")
    after = f"{count} deleted" if yes else f"{count} would be deleted; --yes deletes"
    click.echo(after, err=True)
    return int(ExitCode.PASS)


def _progress(*, as_json: bool) -> Progress:
    if as_json or not sys.stderr.isatty():
        return lambda _done, _total: None

    def show(done: int, total: int) -> None:
        click.echo(f"\r{done} of {total} runs deleted", err=True, nl=done == total)

    return show

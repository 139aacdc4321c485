"""`evalcore worker`: execute shards of a run beside other workers."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from evalcore.cli.number_range import NumberRange
from evalcore.cli.options import (
    chosen_store,
    import_option,
    json_option,
    settings,
    store_option,
    verbose_option,
    workspace_option,
)
from evalcore.cli.progress import ProgressDisplay
from evalcore.cli.run_end import show
from evalcore.cli.run_options import RunOptions
from evalcore.cli.stopping import SignalStopper
from evalcore.cli.worker_process import send_fault
from evalcore.errors import EvalError, ExitCode, RunGoneError, RunNotFoundError
from evalcore.gates.decide import exit_code
from evalcore.isolation.mode import Isolation
from evalcore.model.run import State
from evalcore.pipeline.acceptance import AcceptingWorker, accept_plan
from evalcore.pipeline.finish import finish_run, view_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.integrity import check_plan
from evalcore.pipeline.lane import execute_lane
from evalcore.pipeline.states import cancel_run
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.process_privacy import hide_process

_LEASE_HELP = "After twice as long without a sign of life others take over.  [20]"


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option("--name", help="Of this worker among the run's.  [default: host and process]")
@click.option("--concurrency", type=click.IntRange(min=1), help="Items at the same time, here.")
@click.option(
    "--lease",
    "lease_s",
    type=NumberRange(0.1, 3600),
    metavar="SECONDS",
    help=_LEASE_HELP,
)
@import_option
@workspace_option
@click.option("--root", "roots", multiple=True, type=click.Path(path_type=Path), hidden=True)
@click.option("--part", type=int, hidden=True, help="Process id of the parent, which decides.")
@click.option("--fault-fd", type=int, hidden=True, help="Where the parent is told of an error.")
@click.option("--isolated", type=int, hidden=True, help="The only shard, one item at a time.")
@store_option
@json_option
@verbose_option
def worker(**flags: Any) -> int:
    """Execute shards of a planned or running run that no other worker executes.

    Ends when every shard has its result; the last worker decides the run and shows its
    report. Exit codes are those of `evalcore run`.
    """
    hide_process()
    fault_fd = flags.pop("fault_fd")
    if fault_fd is None:
        return _work(flags)
    os.set_inheritable(fault_fd, False)

    try:
        return _work(flags)
    except EvalError as error:
        if os.getppid() != flags["part"]:  # no parent reports it
            raise
        send_fault(fault_fd, error)
        return int(error.exit_code)


def _work(flags: dict[str, Any]) -> int:
    part = flags["part"]
    options = RunOptions(
        flags["as_json"],
        flags["verbose"],
        imports=flags["imports"],
        keep_workspaces=flags["keep_workspace"],
    )
    store = chosen_store(flags["store"])
    try:
        stored = choose_run(store, flags["run_id"])
    except RunNotFoundError as error:
        if part is None:
            raise
        # The parent has named a run that was there.
        raise RunGoneError(flags["run_id"], store.url) from error
    if part is None:  # a parent has looked before it started this worker
        check_plan(stored, stored.manifest())
    run, policy = accept_plan(stored, AcceptingWorker(Path.cwd(), settings(), options.imports))
    if flags["roots"] and policy.roots:
        policy = replace(policy, roots=flags["roots"])
    manifest, stopper = run.manifest(), SignalStopper()
    quiet = part is not None
    with ProgressDisplay(manifest.suite, manifest.plan.items, quiet=quiet) as progress, stopper:
        execute = options.execute(policy, stopper, progress)
        execute = replace(execute, concurrency=flags["concurrency"])
        name = flags["name"] or f"{socket.gethostname()}-{os.getpid()}"
        lease_s = flags["lease_s"] or execute.settings.lease_s
        end = execute_lane(run, execute, lane=name, lease_s=lease_s, isolated=flags["isolated"])
    if part is not None and os.getppid() == part:
        return int(ExitCode.ERRORS if stopper.stopped else ExitCode.PASS)
    if end.cancelled:
        cancel_run(run, end.receipts, now=datetime.now(UTC), first_manifest=end.first_manifest)
    if end.cancelled or stopper.stopped:
        click.echo(f"stopped; go on with: evalcore run --resume {run.run_id}", err=True)
        return int(ExitCode.ERRORS)
    return int(_finish(run, policy, options))


def _finish(run: StoredRun, policy: ImportPolicy, options: RunOptions) -> ExitCode:
    """Decide the run unless another worker has, and show it."""
    done = run.manifest().state is State.COMPLETED
    now, decide = (
        datetime.now(UTC),
        DecideOptions(policy, isolation=Isolation(settings().isolation)),
    )
    with view_run(run) if done else finish_run(run, (), now=now, options=decide) as view:
        show(view, replace(options, forms=()))
        return exit_code([view.report.decision])

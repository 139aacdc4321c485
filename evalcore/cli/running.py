"""Load, plan, execute, decide and report the suites of a command, one after another."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evalcore.cli.export_files import check_exports
from evalcore.cli.loading import load_suites
from evalcore.cli.options import chosen_store, load_options, settings
from evalcore.cli.progress import ProgressDisplay
from evalcore.cli.reserved_output import reserved_stdout
from evalcore.cli.run_options import RunOptions
from evalcore.cli.scripts import check_imports
from evalcore.cli.showing import report_forms
from evalcore.cli.stopping import SignalStopper
from evalcore.errors import ExitCode, UsageError, resumable
from evalcore.gates.decide import exit_code
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.run import Decision, State
from evalcore.model.suite import Suite
from evalcore.pipeline.compare import settle_baseline
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import worker_count
from evalcore.pipeline.plan import plan_run
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.pipeline.finish import RunView


def run_command(
    flags: dict[str, Any], observe: Callable[[RunView], None] | None = None
) -> ExitCode:
    """Run or resume what the flags of `evalcore run` name; return the exit code.

    `observe` is called with each run that has ended.
    """
    runner = flags.pop("runner")
    planned_workers = _prepare(runner or "auto", flags) if flags["prefect"] else 1
    if runner is not None and not flags["prefect"]:
        raise UsageError("--runner says what executes the shards of a flow run: add --prefect")
    paths = flags.pop("suites")
    mode = flags.pop("mode")
    options = RunOptions(
        mode=mode or Mode.LIVE,
        as_json=flags.pop("as_json"),
        verbose=flags.pop("verbose"),
        prefect=flags.pop("prefect"),
        runner=runner or "auto",
        planned_workers=planned_workers,
        workers=flags.pop("workers"),
        forms=report_forms(flags.pop("forms")),
        imports=flags.pop("imports"),
        detail=flags.pop("detail"),
        isolation=flags.pop("isolation"),
        reuse=HISTORY if flags.pop("reuse") else None,
        keep_workspaces=flags.pop("keep_workspace"),
        exports=tuple(flags.pop("exports")),
        observe=observe,
    )
    address, resume = flags.pop("store"), flags.pop("resume")
    if resume is not None:
        if paths or flags["failed"] is not None:
            named = "suite file" if paths else "--failed"
            raise UsageError(f"--resume takes no {named}: the plan in the store holds all")
        if mode is not None:
            raise UsageError("--resume takes no --mode: the run goes on in its own")
        return resume_run(chosen_store(address), resume, options)
    return run_suites(_load(paths, flags, address, options), chosen_store(address), options)


def _load(
    paths: Sequence[str], flags: dict[str, Any], address: str | None, options: RunOptions
) -> list[Suite]:
    """Return the suites with what the flags lay over them."""
    failed = flags.pop("failed")
    overrides, earlier = load_options(flags, address, options.imports), None
    if failed is not None:
        from evalcore.cli.failed_cases import keep_failed, only_of_run

        overrides, earlier = keep_failed(overrides, chosen_store(address), failed)
    suites = load_suites(
        paths,
        replace(
            overrides,
            # A replay asks no provider and needs no key.
            secrets_required=options.mode != Mode.REPLAY,
        ),
        (*settings().allow_imports, *options.imports),
        portable=options.prefect or options.workers is not None,
    )
    return suites if earlier is None else only_of_run(suites, earlier)


def _prepare(runner: str, flags: Mapping[str, Any]) -> int:
    """Return for how many processes the orchestrator's runs are planned; raise `UsageError`."""
    from evalcore.pipeline.executors import find_runner

    return find_runner("prefect").prepare(runner, flags["workers"])


def run_suites(suites: Sequence[Suite], store: ObjectStore, options: RunOptions) -> ExitCode:
    """Run loaded suites one after another; return the worst decision's exit code."""
    check_exports(options.exports, len(suites))
    for suite in suites:  # before the first one runs: if one cannot, none does
        settle_baseline(store, suite.definition)
        folder = Path(suite.definition.source.folder)
        with reserved_stdout():
            check_imports([suite], options.policy((folder, Path.cwd())))
    if options.prefect:
        from evalcore.pipeline.executors import find_runner

        find_runner("prefect").connect()
    decisions: list[Decision] = []
    for suite in suites:
        planned = plan_run(suite, store, options.plan, now=datetime.now(UTC))
        folder = Path(suite.definition.source.folder)
        before = len(decisions) > 0
        policy = options.policy((folder, Path.cwd()))
        decision = _execute(
            planned,
            options,
            policy=policy,
            objects=suite.objects,
            append=before,
            workers=options.workers or worker_count(suite, planned.known_manifest().plan),
        )
        decisions.append(decision or Decision.ERROR)
        if decision is None:
            break
    return exit_code(decisions)


def resume_run(store: ObjectStore, run_id: str, options: RunOptions) -> ExitCode:
    """Go on with a run; a completed one is only shown, unless a provider ended it.

    Raises `DamagedRunError`.
    """
    run = choose_run(store, run_id)
    manifest = run.manifest()
    if manifest.state is State.COMPLETED:
        from evalcore.pipeline.states import reopen_refused

        if not reopen_refused(run):
            from evalcore.cli.run_end import show_completed

            return exit_code([show_completed(run, options)])
        manifest = run.manifest()
    from evalcore.analytics.integrity import check_plan
    from evalcore.pipeline.acceptance import AcceptingWorker, accept_plan

    # No worker is started for what none could execute.
    check_plan(run, manifest)

    # A plan in a store may have been written by another user.
    accepted = accept_plan(run, AcceptingWorker(Path.cwd(), settings(), options.imports))
    run = accepted.run
    decision = _execute(run, options, policy=accepted.imports, workers=options.workers or 1)
    return ExitCode.ERRORS if decision is None else exit_code([decision])


def _execute(
    run: StoredRun,
    options: RunOptions,
    *,
    policy: ImportPolicy,
    objects: Mapping[str, Any] = NOTHING,
    append: bool = False,
    workers: int = 1,
) -> Decision | None:
    """Execute, finish, show and export a run; return its decision, None if it was stopped.

    `objects` are this process's functions that it calls; `append` says that a run was shown
    before it; so many `workers` (processes) execute it.
    """
    # Planned or reopened by this process just before.
    manifest = run.known_manifest()
    if not gc.get_freeze_count():
        # What is loaded by now stays: a search for cycles in it would hold up all calls.
        gc.freeze()
    stopper = SignalStopper()
    # Lines of a log are read by machines: nothing else stands between them.
    log = settings().log or ""
    quiet = log.startswith("json")
    log_run = run.run_id if log in {"json", "json:info", "json:debug"} else None
    with (
        resumable(run.run_id),
        ProgressDisplay(
            manifest.suite, manifest.plan.items, quiet=quiet, log_run=log_run
        ) as progress,
        # Standard output is for the report: what people's Python prints goes beside it.
        reserved_stdout(),
    ):
        execute = options.execute(policy, stopper, progress, workers)
        execute = replace(execute, objects=objects)
        if options.prefect:
            from evalcore.pipeline.executors import find_runner

            with stopper:
                find_runner("prefect").start(run, execute, options.runner, options.workers)
        else:
            with stopper:
                execute_run(run, execute)
    if stopper.stopped:
        from evalcore.pipeline.states import cancel_run

        if cancel_run(run, now=datetime.now(UTC)).state is not State.COMPLETED:
            click.echo(f"stopped; go on with: evalcore run --resume {run.run_id}", err=True)
            return None
    from evalcore.cli.run_end import end_run

    with resumable(run.run_id):
        return end_run(run, options, execute, append=append)

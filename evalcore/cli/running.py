"""Load, plan, execute, decide and report the suites of a command, one after another."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from evalcore.analytics.integrity import check_run
from evalcore.cli.loading import (
    Named,
    check_imports,
    is_script_run,
    load_named,
    load_suites,
    print_scores,
    read_scores,
    tell_beside,
)
from evalcore.cli.options import (
    check_exports,
    chosen_store,
    import_option,
    json_option,
    load_options,
    log_option,
    override_options,
    settings,
    store_option,
    verbose_option,
)
from evalcore.cli.output import (
    export_view,
    one_line,
    print_terminal,
    report_forms,
    reserved_stdout,
    store_reports,
)
from evalcore.errors import EvalError, ExitCode, RunConflictError, UsageError, resumable
from evalcore.execution.row import ItemEnd
from evalcore.execution.stopper import Stopper
from evalcore.execution.waits import Waits, waiting_text
from evalcore.formats.options import LoadOptions
from evalcore.gates.decide import exit_code
from evalcore.isolation.mode import Isolation
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.run import Decision, Manifest, State
from evalcore.model.suite import Suite
from evalcore.pipeline.acceptance import AcceptingWorker, source_files_of
from evalcore.pipeline.compare import settle_baseline
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import worker_count
from evalcore.pipeline.finish import RunView, finish_run, view_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import outcomes_text

_COUNTS = ("passed", "failed", "blocked", "error", "skipped")
_ITEMS_PER_LOOK = 64
_FIRST_LINE_S = 3.0
_LINE_EVERY_S = 10.0
_WAITS_EVERY_S = 30.0


class ProgressDisplay:
    """Counts finished items; a context that shows them. Safe to call from several threads.

    A log that has any line of it ends with the last state. While calls wait (`waits`), the bar says
    for what, elsewhere a line every 30 s: of JSON for the log of `log_run`. `clock` returns
    seconds.
    """

    def __init__(
        self,
        title: str,
        total: int,
        *,
        quiet: bool = False,
        log_run: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._total = sanitize_terminal(title).replace("\n", " "), total
        self._quiet = quiet
        self._log_run = log_run
        self.waits = Waits(clock)
        self._ended = threading.Event()
        self._teller: threading.Thread | None = None
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._next = self._started + _FIRST_LINE_S
        # Items that ended before the time that is measured, and those of the last line.
        self._unmeasured = self._printed = 0
        self._bar: Any = None
        self.done = 0
        self._counts = dict.fromkeys(_COUNTS, 0)

    def __enter__(self) -> ProgressDisplay:
        if not self._quiet and sys.stderr.isatty():
            self._open_bar()
        elif self._log_run or not self._quiet:
            self._teller = threading.Thread(target=self._tell_waits, name="waits", daemon=True)
            self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._teller is not None:
            self._teller.join()
        if self._bar is not None:
            self._bar.stop()
        elif self._printed not in (0, self.done):
            self._show()

    def __call__(self, finished: ItemEnd) -> None:
        """Count a finished item."""
        with self._lock:
            if not self.done:
                # What came before is no measure for the time left: an orchestrator's start-up.
                self._started, self._unmeasured = self._clock(), 1
                self._next = max(self._next, self._started + _FIRST_LINE_S)
            self.done += 1
            self._counts[_count_of(finished)] += 1
            waited = finished.ended_us - finished.started_us > 10_000
            if waited or self.done % _ITEMS_PER_LOOK == 0:
                self._look()

    def _look(self) -> None:
        now = self._clock()
        if now >= self._next and not self._quiet and self._bar is None:
            self._next = now + _LINE_EVERY_S
            self._show()

    def _tell_waits(self) -> None:
        """Write a line for each 30 s in which calls have waited for something for a second."""
        while not self._ended.wait(_WAITS_EVERY_S):
            waits = self.waits.standing()
            text = waiting_text(waits)
            if not text:
                continue
            if self._log_run is not None:
                from evalcore.observability.log import log_line

                fields = {
                    "run": self._log_run,
                    "suite": self._title,
                    "done": self.done,
                    "items": self._total,
                    "waits": {
                        label: {"calls": calls, "longest_s": round(longest_s, 1)}
                        for label, (calls, longest_s) in waits.items()
                    },
                }
                _tell(log_line("info", "run.waiting", fields, as_json=True))
            else:
                _tell(f"{self._title}: {self.done}/{self._total}, {text}")

    def _state(self) -> str:
        return ", ".join(filter(None, (self._counted(), waiting_text(self.waits.standing()))))

    def _counted(self) -> str:
        return outcomes_text(self._counts)

    def _show(self) -> None:
        self._printed = self.done
        line = f"{self._title}: {self.done}/{self._total}, {self._state()}"
        measured = self.done - self._unmeasured
        if measured and self.done < self._total:
            left_s = (self._clock() - self._started) / measured * (self._total - self.done)
            line += f", about {left_s:.0f} s left"
        _tell(line)

    def _open_bar(self) -> None:
        from rich.console import Console, RenderableType
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        display = self

        class Bar(Progress):
            """Is brought up to date whenever it is drawn: the last items of a burst, too."""

            def get_renderables(self) -> Iterable[RenderableType]:
                for task in self.task_ids:
                    self.update(task, completed=display.done, counted=display._state())
                yield from super().get_renderables()

        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counted]}", markup=False),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(self._title, total=self._total, counted="")
        self._bar.start()


def _tell(line: str) -> None:
    """Write a line to standard error; a run goes on that nobody watches any more."""
    with suppress(OSError):
        click.echo(line, err=True)


def _count_of(finished: ItemEnd) -> str:
    """Return which of the counts an item is one of."""
    if finished.status in (State.ERROR, State.SKIPPED):
        return finished.status.value
    return "failed" if finished.outcome is None else finished.outcome.value


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How runs are executed and shown. `observe` is called with each run that has ended.

    `runner` is Prefect's, which asks for plans for `planned_workers` processes.
    """

    as_json: bool
    verbose: bool
    prefect: bool = False
    runner: str = "auto"
    planned_workers: int = 1
    workers: int | None = None
    forms: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    mode: str = Mode.LIVE
    reuse: str | None = None
    keep_workspaces: bool = False
    exports: tuple[Path, ...] = ()
    detail: bool = False
    isolation: str | None = None
    observe: Callable[[RunView], None] | None = None

    def policy(self, roots: tuple[Path, ...]) -> ImportPolicy:
        """Return what may be imported: below the roots, and what the caller and settings allow."""
        return ImportPolicy(roots=roots, allowed=(*settings().allow_imports, *self.imports))

    def execute(
        self,
        policy: ImportPolicy,
        stopper: Stopper,
        progress: ProgressDisplay,
        workers: int = 1,
    ) -> ExecuteOptions:
        """Return how the run is executed, with warnings on standard error."""
        configured = settings()
        return ExecuteOptions(
            imports=policy,
            settings=configured,
            progress=progress,
            stopper=stopper,
            warn=tell_warning,
            keep_workspaces=self.keep_workspaces,
            isolation=Isolation(self.isolation or configured.isolation),
            workers=workers,
            waits=progress.waits,
        )

    @property
    def plan(self) -> PlanOptions:
        """How plans are cut: through an orchestrator a small run shows each case."""
        options = PlanOptions(
            mode=self.mode,
            reuse=self.reuse,
            workers=self.workers or 1,
            isolation=self.isolation,
            warn=tell_warning,
        )
        if self.prefect:
            return replace(options, workers=self.planned_workers, single_items=True)
        return options


def tell_warning(message: str) -> None:
    """Print a warning, which decides nothing, to standard error."""
    click.echo(f"Warning: {one_line(message)}", err=True)


class SignalStopper(Stopper):
    """Ends the execution at the first interrupt, the process at the second.

    As a context it takes the process's signals from beginning to end: a run has moments without an
    event loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> SignalStopper:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, *_: object) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        click.echo("stopping (again to leave at once) …", err=True)
        self.stop()


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

    with resumable(run.run_id):
        return end_run(run, options, execute, append=append)


def end_run(
    run: StoredRun,
    options: RunOptions,
    execute: ExecuteOptions,
    *,
    append: bool = False,
) -> Decision:
    """Decide a run that was executed, show and export it; return the decision.

    `append` says that a run was shown before it.
    """
    now = datetime.now(UTC)
    decide = DecideOptions(execute.imports, execute.objects, execute.isolation)
    with ExitStack() as stack:
        with reserved_stdout():  # custom gates are called
            view = stack.enter_context(
                view_run(run) if options.prefect else finish_run(run, now=now, options=decide)
            )
        # Who reads no further still gets the decision, and so do those who are told of it.
        with suppress(BrokenPipeError):
            show(view, options, append=append)
        decision = _export(view, options, append=append)
        if not options.prefect:  # else the flow has told
            _tell_run_end(view)
        if options.observe is not None:
            options.observe(view)
        return decision


def show_completed(run: StoredRun, options: RunOptions) -> Decision:
    """Show and export a completed run; return its decision. Raises `DamagedRunError`."""
    with view_run(run) as view:
        with suppress(BrokenPipeError):
            show(view, options)
        return _export(view, options)


def _export(view: RunView, options: RunOptions, *, append: bool = False) -> Decision:
    """Write the exports; return the decision that the exit code stands for.

    What cannot be written is an error beside the run's decision, which it does not hide if that is
    a failure: the run was executed.
    """
    try:
        export_view(view, options.exports, append=append)
    except (EvalError, OSError) as error:
        click.echo(one_line(str(error)), err=True)
        failed = view.report.decision is Decision.FAIL
        return Decision.FAIL if failed else Decision.ERROR
    return view.report.decision


def _tell_run_end(view: RunView) -> None:
    """Send the decision to those whom the suite or the configuration names."""
    if view.run.definition.policy.notify is None and settings().notify is None:
        return
    from evalcore.pipeline.notify import notify_decision

    for warning in notify_decision(view, settings()):
        click.echo(one_line(f"Warning: {warning}"), err=True)


def show(view: RunView, options: RunOptions, *, append: bool = False) -> None:
    """Print a run's report, and store the other forms that were asked for.

    `append` says that a report stands before it.
    """
    store_reports(view, options.forms)
    scores = read_scores(view, detail=options.detail) if is_script_run(view) else None
    if options.as_json:
        click.echo(view.json(newline=""), nl=False)
    elif scores is not None:
        print_scores(scores, append=append)
    else:
        print_terminal(view, verbose=options.verbose)
    if scores is not None:
        tell_beside(view, scores, verbose=options.verbose)


@click.command()
@run_argument
@click.argument("suite_file", metavar="[SUITE]", required=False)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="How judges are asked (default: as RUN was executed).",
)
@import_option
@override_options
@log_option
@store_option
@json_option
@verbose_option
def regrade(run_id: str, suite_file: str | None, store: str | None, **flags: Any) -> int:
    """Grade the evidence of RUN with the assertions that SUITE has now, as a new run.

    SUITE is the file that RUN was made from by default. What RUN has no evidence of ends in error.
    """
    opened = chosen_store(store)
    source = choose_run(opened, run_id)
    run_id = source.run_id
    manifest = source.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run_id} is {manifest.state}; `evalcore run --resume {run_id}` ends it first"
        )
    check_run(source)
    overrides = load_options({**flags, "format_": flags["format_"] or manifest.format}, store)
    path, script = _files(source, suite_file)
    if overrides.script is None:
        overrides = replace(overrides, script=script)
    overrides = replace(overrides, file_rules=source.definition.file_rules)
    if not path.is_file():
        raise UsageError(
            f"run {run_id} was made from {path}, which is not there; name the file: "
            f"evalcore regrade {run_id} SUITE"
        )
    allowed = (*settings().allow_imports, *flags["imports"])
    suites = load_named(Named(str(path)), replace(overrides, secrets_required=False), allowed)
    names = [suite.definition.name for suite in suites]
    if manifest.suite not in names:
        listed = ", ".join(f"'{name}'" for name in names)
        raise UsageError(f"{path} is suite {listed}; run {run_id} is of '{manifest.suite}'")
    suite = suites[names.index(manifest.suite)]
    options = RunOptions(
        as_json=flags["as_json"],
        verbose=flags["verbose"],
        imports=flags["imports"],
        mode=flags["mode"] or manifest.mode,
        reuse=run_id,
    )
    return int(run_suites([suite], opened, options))


def _files(run: StoredRun, suite_file: str | None) -> tuple[Path, str | None]:
    """Return the suite's file, and the script of a script suite if the run may name one."""
    try:
        path, script = source_files_of(run, AcceptingWorker(Path.cwd(), settings()))
    except EvalError:
        if suite_file is None:
            raise
        return Path(suite_file), None
    return Path(suite_file or path), script


def keep_failed(
    options: LoadOptions, store: ObjectStore, name: str
) -> tuple[LoadOptions, Manifest]:
    """Return the options with only the cases that did not pass in a run, and the run's manifest.

    A case did not pass if it did not in one of the variants. Raises `UsageError` if none is left.
    """
    run = choose_run(store, name)
    with view_run(run) as view:
        failed = frozenset(view.tables.not_passed())
    manifest = run.manifest()
    of_run = f"--failed {name}: {manifest.id} of suite '{manifest.suite}'"
    if not failed:
        raise UsageError(f"{of_run}: every case passed; nothing was run")
    cases = failed & options.cases if options.cases else failed
    if not cases:
        raise UsageError(f"{of_run}: the cases of --case passed; nothing was run")
    names = {**options.option_names, "--case": f"--failed {name}"}
    return replace(options, cases=cases, option_names=names), manifest


def only_of_run(suites: Sequence[Suite], manifest: Manifest) -> list[Suite]:
    """Return the suites that the run is of; raise `UsageError` if there is none.

    Another suite may have cases of the same ids.
    """
    chosen = [suite for suite in suites if suite.definition.name == manifest.suite]
    if not chosen:
        names = ", ".join(f"'{suite.definition.name}'" for suite in suites)
        raise UsageError(
            f"--failed: {manifest.id} is a run of suite '{manifest.suite}', not of {names}; "
            f"`--failed {suites[0].definition.name}/last` names the last one of that suite"
        )
    return chosen

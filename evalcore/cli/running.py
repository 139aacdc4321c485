"""Load, plan, execute, decide and report the suites of a command, one after another."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from evalcore.analytics.integrity import check_plan, check_run
from evalcore.cli.loading import Named, check_imports, load_named, load_suites
from evalcore.cli.options import (
    check_exports,
    chosen_store,
    import_option,
    json_option,
    load_options,
    log_option,
    override_options,
    run_argument,
    settings,
    store_option,
    verbose_option,
)
from evalcore.cli.output import (
    export_view,
    print_terminal,
    reserved_stdout,
    say,
    store_reports,
    warn,
)
from evalcore.errors import EvalError, ExitCode, RunConflictError, UsageError, resumable
from evalcore.execution.row import ItemEnd
from evalcore.execution.stopper import Stopper
from evalcore.execution.waits import Waits, waiting_text
from evalcore.formats.options import LoadOptions
from evalcore.gates.decide import exit_code
from evalcore.isolation.mode import Isolation
from evalcore.model.evidence import NOTHING
from evalcore.model.mode import Mode
from evalcore.model.run import Decision, GateOutcome, Manifest, State
from evalcore.model.suite import Format, Suite
from evalcore.pipeline.acceptance import AcceptingWorker, accept_plan, source_files_of
from evalcore.pipeline.compare import settle_baseline
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.executors import find_runner, worker_count
from evalcore.pipeline.finish import RunView, finish_run, view_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import cancel_run, reopen_refused
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.text import sanitize_terminal
from evalcore.wording import counted, outcomes_text

_COUNTS = ("passed", "failed", "blocked", "error", "skipped")
_ITEMS_PER_LOOK = 64
_FIRST_LINE_S = 3.0
_LINE_EVERY_S = 10.0
_WAITS_EVERY_S = 30.0
_MOST_NOTES: Final = 200


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
            if finished.status in (State.ERROR, State.SKIPPED):
                self._counts[finished.status.value] += 1
            else:
                self._counts["failed" if finished.outcome is None else finished.outcome.value] += 1
            waited = finished.ended_us - finished.started_us > 10_000
            if self._quiet or self._bar is not None:
                return
            # The clock is asked for what took long, and sometimes for what did not.
            if waited or self.done % _ITEMS_PER_LOOK == 0:
                now = self._clock()
                if now >= self._next:
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
        counted_items = outcomes_text(self._counts)
        return ", ".join(filter(None, (counted_items, waiting_text(self.waits.standing()))))

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


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How runs are executed and shown: flags of `evalcore run` by their names.

    `reuse` says where evidence is taken from.
    """

    as_json: bool
    verbose: bool
    prefect: bool = False
    runner: str | None = None
    workers: int | None = None
    forms: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    mode: str | None = None
    reuse: str | None = None
    keep_workspace: bool = False
    exports: Sequence[Path] = ()
    detail: bool = False
    isolation: str | None = None

    def policy(self, suite: Suite) -> ImportPolicy:
        """Return what a suite may import: what is below its folder or this one, or is allowed."""
        roots = (Path(suite.definition.source.folder), Path.cwd())
        return ImportPolicy(roots=roots, allowed=(*settings().allow_imports, *self.imports))


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


def run_command(flags: dict[str, Any]) -> ExitCode:
    """Run or resume what the flags of `evalcore run` name; return the exit code."""
    own = {each.name: flags.pop(each.name) for each in fields(RunOptions) if each.name in flags}
    options = RunOptions(**own)
    if options.runner is not None and not options.prefect:
        raise UsageError("--runner requires --prefect")
    paths, failed, resume = flags.pop("suites"), flags.pop("failed"), flags.pop("resume")
    address = flags.pop("store")
    if resume is not None:
        if paths or failed is not None:
            named = "suite files" if paths else "--failed"
            raise UsageError(
                f"--resume cannot be combined with {named}; it continues the stored plan"
            )
        if options.mode is not None:
            raise UsageError("--resume takes no --mode: the run keeps its own")
        return resume_run(chosen_store(address), resume, options)
    # A replay asks no provider and needs no key.
    overrides = replace(
        load_options(flags, address, options.imports),
        secrets_required=options.mode != Mode.REPLAY,
    )
    earlier = None
    if failed is not None:
        overrides, earlier = keep_failed(overrides, chosen_store(address), failed)
    suites = load_suites(
        paths,
        overrides,
        (*settings().allow_imports, *options.imports),
        portable=options.prefect or options.workers is not None,
    )
    if earlier is not None:
        suites = only_of_run(suites, earlier)
    return run_suites(suites, chosen_store(address), options)


def run_suites(suites: Sequence[Suite], store: ObjectStore, options: RunOptions) -> ExitCode:
    """Run loaded suites one after another; return the worst decision's exit code."""
    check_exports(options.exports, len(suites))
    for suite in suites:  # before the first one runs: if one cannot, none does
        settle_baseline(store, suite.definition)
        with reserved_stdout():
            check_imports([suite], options.policy(suite))
    plan = PlanOptions(
        mode=options.mode or Mode.LIVE,
        reuse=options.reuse,
        workers=options.workers or 1,
        isolation=options.isolation,
        warn=warn,
    )
    if options.prefect:
        runner = find_runner("prefect")
        workers = runner.prepare(options.runner or "auto", options.workers)
        # Through an orchestrator a small run shows each case.
        plan = replace(plan, workers=workers, single_items=True)
        runner.connect()
    decisions: list[Decision] = []
    for suite in suites:
        planned = plan_run(suite, store, plan, now=datetime.now(UTC))
        decision = _execute(
            planned,
            options,
            policy=options.policy(suite),
            objects=suite.objects,
            append=len(decisions) > 0,
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
        if not reopen_refused(run):
            with view_run(run) as view:
                return exit_code([_show_and_export(view, options)])
        manifest = run.manifest()
    # No worker is started for what none could execute.
    check_plan(run, manifest)
    # A plan in a store may have been written by another user.
    accepted = accept_plan(run, AcceptingWorker(Path.cwd(), settings(), options.imports))
    decision = _execute(
        accepted.run, options, policy=accepted.imports, workers=options.workers or 1
    )
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
    configured = settings()
    # Lines of a log are read by machines: nothing else stands between them.
    log = configured.log or ""
    log_run = run.run_id if log in {"json", "json:info", "json:debug"} else None
    quiet = log.startswith("json")
    title, items = manifest.suite, manifest.plan.items
    stopper = SignalStopper()
    with (
        resumable(run.run_id),
        ProgressDisplay(title, items, quiet=quiet, log_run=log_run) as progress,
        # Standard output is for the report: what people's Python prints goes beside it.
        reserved_stdout(),
        stopper,
    ):
        execute = ExecuteOptions(
            imports=policy,
            settings=configured,
            objects=objects,
            progress=progress,
            stopper=stopper,
            warn=warn,
            keep_workspaces=options.keep_workspace,
            isolation=Isolation(options.isolation or configured.isolation),
            workers=workers,
            waits=progress.waits,
        )
        if options.prefect:
            runner = find_runner("prefect")
            runner.start(run, execute, options.runner or "auto", options.workers)
        else:
            execute_run(run, execute)
    now = datetime.now(UTC)
    if stopper.stopped and cancel_run(run, now=now).state is not State.COMPLETED:
        click.echo(f"stopped; go on with: evalcore run --resume {run.run_id}", err=True)
        return None
    decide = DecideOptions(execute.imports, execute.objects, execute.isolation)
    with resumable(run.run_id), ExitStack() as stack:
        with reserved_stdout():  # custom gates are called
            finished = (
                view_run(run) if options.prefect else finish_run(run, now=now, options=decide)
            )
            view = stack.enter_context(finished)
        decision = _show_and_export(view, options, append=append)
        if not options.prefect:  # else the flow has told
            _notify(view)
        return decision


def _show_and_export(view: RunView, options: RunOptions, *, append: bool = False) -> Decision:
    """Show a run and write the exports; return the decision that the exit code stands for.

    What cannot be written is an error beside the run's decision, which it does not hide if that is
    a failure: the run was executed. `append` says that a run was shown before it.
    """
    # Who reads no further still gets the decision, and so do those who are told of it.
    with suppress(BrokenPipeError):
        _show(view, options, append=append)
    decision = view.report.decision
    try:
        export_view(view, options.exports, append=append)
    except (EvalError, OSError) as error:
        say(str(error), err=True)
        return Decision.FAIL if decision is Decision.FAIL else Decision.ERROR
    return decision


def _notify(view: RunView) -> None:
    """Send the decision to those whom the suite or the configuration names."""
    if view.run.definition.policy.notify is None and settings().notify is None:
        return
    from evalcore.pipeline.notify import notify_decision

    for warning in notify_decision(view, settings()):
        warn(warning)


def _show(view: RunView, options: RunOptions, *, append: bool) -> None:
    """Print a run's report, and store the other forms that were asked for."""
    store_reports(view, options.forms)
    is_script = view.report.format == Format.SCRIPT_SUITE
    if options.as_json:
        click.echo(view.json(newline=""), nl=False)
    elif not is_script:
        print_terminal(view, verbose=options.verbose)
    if is_script:
        _show_script(view, options, append=append)


def _show_script(view: RunView, options: RunOptions, *, append: bool) -> None:
    """Print the scores of a script suite as YAML; everything else goes to standard error."""
    from evalcore.report.script_scores import as_yaml, note_lines, scores_document, token_lines

    scores = view.tables.script_scores(detail=options.detail)
    if not options.detail and any(test.group is None for test in scores.tests):
        scores = view.tables.script_scores(detail=True)  # a flat file shows each iteration
    if not options.as_json:
        between = "---\n" if append else ""
        click.echo(between + as_yaml(scores_document(scores)), nl=False)
    notes, repeated = view.tables.script_notes(), view.plan.iterations > 1
    lines = list(note_lines(notes, variants=len(scores.finals) > 1, iterations=repeated))
    if len(lines) > _MOST_NOTES:
        more = counted(len(lines) - _MOST_NOTES, "more message")
        lines[_MOST_NOTES:] = [f"and {more}: --json lists them"]
    for gate in view.report.gates:
        if gate.outcome is not GateOutcome.PASS or options.verbose:
            lines.append(f"gate {gate.name}: {gate.outcome}: {gate.message}")
    if not options.verbose:
        lines.append(f"run {view.report.run.id} in {view.run.store.url}")
    for line in lines:
        say(line, err=True)
    if options.verbose:
        print_terminal(view, verbose=True, err=True)
    for line in token_lines(scores.tokens):
        say(line, err=True)


@click.command()
@run_argument
@click.argument("suite_file", metavar="[SUITE]", required=False)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="How judges are asked.  [default: as in RUN]",
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
    run_id, manifest = source.run_id, source.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run_id} is {manifest.state}; `evalcore run --resume {run_id}` ends it first"
        )
    check_run(source)
    script: str | None = None
    try:
        path, script = source_files_of(source, AcceptingWorker(Path.cwd(), settings()))
    except EvalError:
        if suite_file is None:
            raise
    path = path if suite_file is None else Path(suite_file)
    if not path.is_file():
        raise UsageError(
            f"run {run_id} was made from {path}, which is not there; name the file: "
            f"evalcore regrade {run_id} SUITE"
        )
    overrides = load_options({**flags, "format_": flags["format_"] or manifest.format}, store)
    overrides = replace(
        overrides,
        script=overrides.script or script,
        file_rules=source.definition.file_rules,
        secrets_required=False,
    )
    allowed = (*settings().allow_imports, *flags["imports"])
    suites = {
        each.definition.name: each for each in load_named(Named(str(path)), overrides, allowed)
    }
    if manifest.suite not in suites:
        listed = ", ".join(f"'{name}'" for name in suites)
        raise UsageError(f"{path} is suite {listed}; run {run_id} is of '{manifest.suite}'")
    options = RunOptions(
        as_json=flags["as_json"],
        verbose=flags["verbose"],
        imports=flags["imports"],
        mode=flags["mode"] or manifest.mode,
        reuse=run_id,
    )
    return int(run_suites([suites[manifest.suite]], opened, options))


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

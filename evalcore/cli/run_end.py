"""The end of a run whose shards have their results: decide, show, export, notify.

Not imported before the run is executed: what executes does not wait for what reports.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from datetime import UTC, datetime

import click

from evalcore.cli.exporting import export_view
from evalcore.cli.options import settings
from evalcore.cli.reserved_output import reserved_stdout
from evalcore.cli.run_options import RunOptions
from evalcore.cli.scripts import is_script_run, print_scores, read_scores, tell_beside
from evalcore.cli.showing import one_line, print_terminal, store_reports
from evalcore.errors import EvalError
from evalcore.model.run import Decision
from evalcore.pipeline.finish import RunView, finish_run, view_run
from evalcore.pipeline.gates import DecideOptions
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.runs import StoredRun


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
            _tell(view)
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


def _tell(view: RunView) -> None:
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

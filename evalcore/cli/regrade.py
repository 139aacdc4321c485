"""`evalcore regrade`: grade a run's stored evidence with changed assertions; call no target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evalcore.analytics.integrity import check_run
from evalcore.cli.loading import Named, load_named
from evalcore.cli.options import (
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
from evalcore.cli.run_options import RunOptions
from evalcore.cli.running import run_suites
from evalcore.errors import EvalError, RunConflictError, UsageError
from evalcore.model.mode import Mode
from evalcore.model.run import State
from evalcore.pipeline.acceptance import AcceptingWorker, source_files_of
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun


@click.command()
@click.argument("run_id", metavar="RUN")
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

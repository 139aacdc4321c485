"""Which cases `evalcore run --failed RUN` runs: those that did not pass in an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evalcore.errors import UsageError
from evalcore.formats.options import LoadOptions
from evalcore.model.run import Manifest
from evalcore.model.suite import Suite
from evalcore.pipeline.finish import view_run
from evalcore.storage.run_names import choose_run
from evalcore.storage.store import ObjectStore


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

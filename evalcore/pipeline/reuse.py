"""Which of a planned run's items need no execution: their evidence stands in earlier runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from evalcore.analytics.reuse import PlannedItem, ReusableRows
from evalcore.errors import DamagedRunError
from evalcore.execution.reuse import REUSE_ITEMS
from evalcore.model.run import Plan, State
from evalcore.model.suite import Suite
from evalcore.pipeline.integrity import check_parts, check_shards
from evalcore.pipeline.plan import HISTORY
from evalcore.planning.expand import Expander
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import StoredRun, find_run, list_runs, open_run

_RUNS_LOOKED_AT = 20


def earlier_runs(store: ObjectStore, suite: str) -> tuple[StoredRun, ...]:
    """Return the suite's last 20 completed runs, the newest first."""
    completed = (run for run in list_runs(store, suite) if run.state is State.COMPLETED)
    return tuple(open_run(store, suite, run.id) for run in islice(completed, _RUNS_LOOKED_AT))


def prepare_reuse(run: StoredRun, suite: Suite, plan: Plan, source: str) -> None:
    """Write, beside the plan, the stored rows that its items take over.

    `source` is `HISTORY`, or the id of the one run whose evidence is graded again.
    """
    if source == HISTORY:
        runs: Sequence[StoredRun] = earlier_runs(run.store, suite.definition.name)
    else:
        runs = (find_run(run.store, source),)
    with ExitStack() as stack, TemporaryDirectory(prefix="evalcore-reuse-") as folder:
        parts: list[Sequence[Path]] = []
        for earlier in runs:
            try:
                parts.append(stack.enter_context(_whole_parts(earlier)))
            except DamagedRunError as error:
                if source != HISTORY:
                    raise
                parts.append(())
                sys.stderr.write(f"Warning: nothing is taken from an earlier run: {error}\n")
        if not any(parts):
            return
        errors = source != HISTORY
        rows = stack.enter_context(ReusableRows(parts, errors=errors, items=plan.items))
        counts = rows.match(_planned_items(suite, plan))
        _note_sources(run, [earlier.run_id for earlier in runs], counts.by_run)
        for number, first in enumerate(range(0, plan.items, REUSE_ITEMS)):
            path = Path(folder) / f"{number:05d}.parquet"
            rows.write_part(range(first, min(first + REUSE_ITEMS, plan.items)), path)
            run.store.put_if_absent(run.keys.reuse_part(number), path)


@contextmanager
def _whole_parts(run: StoredRun) -> Iterator[Sequence[Path]]:
    """Give the result parts of a run; raise `DamagedRunError` unless they are its items' rows."""
    manifest = run.manifest()
    check_shards(run, manifest)
    with run.result_files(manifest.plan) as files:
        check_parts(run, manifest, files)
        yield files


def _note_sources(run: StoredRun, runs: Sequence[str], items: Sequence[int]) -> None:
    """Keep in the manifest how many items come from which runs."""
    reused = [{"run": name, "items": count} for name, count in zip(runs, items, strict=True)]
    taken = [entry for entry in reused if entry["items"]]
    if taken:
        run.update(lambda stored: replace(stored, settings={**stored.settings, "reused": taken}))


def _planned_items(suite: Suite, plan: Plan) -> Iterator[PlannedItem]:
    expander = Expander(suite.definition)
    for index, case in enumerate(suite.cases):
        first = index * plan.items_per_case
        for item in expander.expand(case, first, range(first, first + plan.items_per_case)):
            yield PlannedItem(item.number, item.exec_key, item.grade_key)

"""What a run takes from earlier runs: evidence, and rows for gates over time.

Evidence and rows are settled when the run is planned: they are copied beside its plan, so that it
is executed and decided to the same bytes from its own folder alone, also after the other runs are
deleted and the tables of the history are compacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.analytics.integrity import whole_parts
from evalcore.errors import (
    DamagedRunError,
    EvalError,
    ObjectNotFoundError,
    ResultsDroppedError,
)
from evalcore.gates.over_time import PastGate
from evalcore.gates.registry import restore_gate
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.past import PastRuns, past_runs_of
from evalcore.model.run import Manifest, Plan, State
from evalcore.model.suite import Suite, SuiteDefinition
from evalcore.storage.manifests import digest_of
from evalcore.storage.runs import StoredRun, find_run, list_runs, open_run
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder

if TYPE_CHECKING:
    from evalcore.analytics.gate_tables import PastTables
    from evalcore.analytics.results import PlannedItem

# Completed runs of the suite, the newest first.
_RUNS_LOOKED_AT = 20


def prepare_reuse(
    run: StoredRun, suite: Suite, plan: Plan, source: str, warn: Callable[[str], None]
) -> tuple[dict[str, str], dict[str, Any]]:
    """Write, beside the plan, the stored rows that its items take over.

    Returns the digests of the parts that were written, and what is added to the run's settings: how
    many items come from which runs. `source` is `HISTORY`, or the id of the one run whose evidence
    is graded again. `warn` is told why evidence of earlier runs is not taken.
    """
    from evalcore.analytics.results import ReusableRows
    from evalcore.execution.reused_items import REUSE_ITEMS

    regraded = source != HISTORY
    runs = [find_run(run.store, source)] if regraded else []
    if not regraded:
        name = suite.definition.name
        completed = (each for each in list_runs(run.store, name) if each.state is State.COMPLETED)
        runs = [open_run(run.store, name, each.id) for each in islice(completed, _RUNS_LOOKED_AT)]
    with ExitStack() as stack, temporary_folder("evalcore-reuse-") as folder:
        digests: dict[str, str] = {}
        parts = [_opened_parts(stack, earlier, warn, required=regraded) for earlier in runs]
        if not any(parts):
            return digests, {}
        rows = stack.enter_context(ReusableRows(parts, errors=regraded, items=plan.items))
        counts = rows.match(_planned_items(suite, plan))
        sources = [
            {"run": earlier.run_id, "items": count}
            for earlier, count in zip(runs, counts.by_run, strict=True)
            if count
        ]
        for number, first in enumerate(range(0, plan.items, REUSE_ITEMS)):
            path = folder / f"{number:05d}.parquet"
            rows.write_part(range(first, min(first + REUSE_ITEMS, plan.items)), path)
            key = run.keys.reuse_part(number)
            digests[key.removeprefix(run.keys.plan_prefix)] = digest_of(path.read_bytes())
            run.store.put_if_absent(key, path)
        return digests, {"reused": sources} if sources else {}


def _opened_parts(
    stack: ExitStack, run: StoredRun, warn: Callable[[str], None], *, required: bool
) -> Sequence[Path]:
    """Return the result parts of a run; unless they are `required`, none if the run lacks some."""
    try:
        return [*stack.enter_context(whole_parts(run, run.manifest())).values()]
    except ResultsDroppedError:
        if required:
            raise
    except DamagedRunError as error:
        if required:
            raise
        warn(f"nothing is taken from an earlier run: {error}")
    return ()


def _planned_items(suite: Suite, plan: Plan) -> Iterator[PlannedItem]:
    """Yield the items by their identities."""
    from evalcore.analytics.results import PlannedItem
    from evalcore.planning.expand import Expander

    expander = Expander(suite.definition)
    for index, case in enumerate(suite.cases):
        first = index * plan.items_per_case
        for item in expander.expand(case, first, range(first, first + plan.items_per_case)):
            yield PlannedItem(item.number, item.exec_key, item.grade_key)


_PAST_FILES = ("past_runs", "past_cases")


@dataclass(frozen=True, slots=True)
class FrozenPast:
    """The earlier runs, and their rows as parts of the plan by name."""

    runs: PastRuns
    parts: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, run: StoredRun) -> dict[str, str]:
        """Write the parts beside the plan of a run; return their digests by name."""
        for name, data in self.parts.items():
            run.store.put_if_absent(run.keys.past_part(name), data)
        return {f"{name}.parquet": digest_of(data) for name, data in self.parts.items()}


def wanted_past_runs(definition: SuiteDefinition) -> int:
    """Return how many earlier runs the suite's gates look back on; 0 if none does."""
    gates = map(restore_gate, definition.policy.gates)
    return max((gate.wanted_runs for gate in gates if isinstance(gate, PastGate)), default=0)


def freeze_past_runs(
    store: ObjectStore, suite: Suite, mode: str, graded: StoredRun | None
) -> FrozenPast | None:
    """Return the newest comparable runs of the suite; None if no gate looks back.

    Brings the history up to date first. A run that is graded again looks back on what the run that
    it grades did. A history that cannot be read is a reason, no error.
    """
    most = wanted_past_runs(suite.definition)
    if not most:
        return None
    try:
        return _choose(store, suite, mode, most) if graded is None else _as_before(graded)
    except EvalError as error:
        return FrozenPast(PastRuns(reason=f"the history cannot be read: {error}"))


def _as_before(run: StoredRun) -> FrozenPast:
    settings = run.manifest().settings.get("history")
    if not settings:
        return FrozenPast(PastRuns(reason=f"run {run.run_id}, graded again, has no history"))
    try:
        parts = {name: run.store.get(run.keys.past_part(name)).data for name in _PAST_FILES}
    except ObjectNotFoundError:
        parts = {}
    return FrozenPast(past_runs_of(settings), parts)


def _choose(store: ObjectStore, suite: Suite, mode: str, most: int) -> FrozenPast:
    from evalcore.history.files import HistoryViews
    from evalcore.history.fingerprints import digest_cases, judges_sha256
    from evalcore.history.sync import sync
    from evalcore.history.trend import comparable_runs, write_past_runs

    synced = sync(store)
    definition = suite.definition
    cases_sha256, judged = digest_cases(suite.cases.parts())
    chosen: list[str] = []
    left_out: dict[str, int] = {}
    tables = ("runs", "cases")
    with (
        HistoryViews(store, suites=[definition.name], tables=tables) as views,
        temporary_folder("evalcore-past-") as folder,
    ):
        for run_id, difference in comparable_runs(
            views,
            definition.name,
            cases_sha256=cases_sha256,
            judges_sha256=judges_sha256(definition, judged=judged),
            replayed=mode == Mode.REPLAY,
        ):
            if len(chosen) == most:
                break
            reason = difference or _unusable(store, definition.name, run_id)
            if reason is None:
                chosen.append(run_id)
            else:
                left_out[reason] = left_out.get(reason, 0) + 1
        if synced.damaged:
            left_out["damaged"] = len(synced.damaged)
        chosen.reverse()
        if not chosen:
            return FrozenPast(PastRuns((), left_out))
        files = write_past_runs(views, definition.name, chosen, folder)
        parts = {name: path.read_bytes() for name, path in files.items()}
    return FrozenPast(PastRuns(tuple(chosen), left_out), parts)


def _unusable(store: ObjectStore, suite: str, run_id: str) -> str | None:
    """Return why a run of the tables is no evidence of its own; None if it is."""
    try:
        manifest = open_run(store, suite, run_id).manifest()
    except ObjectNotFoundError:
        return "deleted"
    except EvalError:
        return "damaged"
    if manifest.settings.get("reuse") not in {None, HISTORY}:
        return "graded again"
    copied = sum(int(source["items"]) for source in manifest.settings.get("reused") or ())
    return "with reused results only" if copied >= manifest.plan.items else None


@contextmanager
def open_past_runs(run: StoredRun, manifest: Manifest) -> Iterator[PastTables | None]:
    """Give the frozen runs with their rows as files; None if no gate of the run looks back.

    Raises `DamagedRunError` if the rows are not those that were frozen.
    """
    if not wanted_past_runs(run.definition):
        yield None
        return
    from evalcore.analytics.gate_tables import PastTables

    past = past_runs_of(manifest.settings.get("history"))
    with ExitStack() as stack:
        if not past.run_ids:
            yield PastTables(past)
            return
        folder = stack.enter_context(temporary_folder("evalcore-past-"))
        files = []
        for name in _PAST_FILES:
            path = folder / f"{name}.parquet"
            path.write_bytes(run.plan_object(run.keys.past_part(name)))
            files.append(path)
        yield PastTables(past, files[0], files[1])

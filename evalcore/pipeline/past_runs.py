"""The earlier runs that gates over time look back on: chosen and frozen when a run is planned.

Their rows are copied beside the plan. So the run is decided again to the same bytes from its own
folder alone: also after the other runs are deleted and the tables of the history are compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evalcore.errors import EvalError, ObjectNotFoundError
from evalcore.gates.over_time import PastGate
from evalcore.gates.registry import restore_gate
from evalcore.model.mode import HISTORY, Mode
from evalcore.model.past import PastRuns, past_runs_of
from evalcore.model.run import Manifest
from evalcore.model.suite import Suite, SuiteDefinition
from evalcore.storage.object_store import ObjectStore
from evalcore.storage.runs import StoredRun, find_run, open_run
from evalcore.storage.seal import digest_of
from evalcore.storage.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from evalcore.analytics.past import PastTables

_FILES = ("past_runs", "past_cases")


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
    store: ObjectStore, suite: Suite, *, mode: str, reuse: str | None
) -> FrozenPast | None:
    """Return the newest comparable runs of the suite; None if no gate looks back.

    Brings the history up to date first. A run that is graded again looks back on what the run that
    it grades did. A history that cannot be read is a reason, no error.
    """
    most = wanted_past_runs(suite.definition)
    if not most:
        return None
    try:
        if reuse not in {None, HISTORY}:
            return _as_before(find_run(store, str(reuse)))
        return _choose(store, suite, mode, most)
    except EvalError as error:
        return FrozenPast(PastRuns(reason=f"the history cannot be read: {error}"))


def _as_before(run: StoredRun) -> FrozenPast:
    settings = run.manifest().settings.get("history")
    if not settings:
        return FrozenPast(PastRuns(reason=f"run {run.run_id}, graded again, has no history"))
    try:
        parts = {name: run.store.get(run.keys.past_part(name)).data for name in _FILES}
    except ObjectNotFoundError:
        parts = {}
    return FrozenPast(past_runs_of(settings), parts)


def _choose(store: ObjectStore, suite: Suite, mode: str, most: int) -> FrozenPast:
    from evalcore.history.fingerprints import digest_cases, judges_sha256
    from evalcore.history.past_runs import ComparedWork, PastRows
    from evalcore.history.sync import sync

    synced = sync(store)
    definition = suite.definition
    cases_sha256, judged = digest_cases(suite.cases.parts())
    judges = judges_sha256(definition, judged=judged)
    work = ComparedWork(definition.name, cases_sha256, judges, mode == Mode.REPLAY)
    chosen: list[str] = []
    left_out: dict[str, int] = {}
    with PastRows(store, definition.name) as rows, temporary_folder("evalcore-past-") as folder:
        for listed in rows.comparable(work):
            if len(chosen) == most:
                break
            reason = listed.reason or _unusable(store, definition.name, listed.run_id)
            if reason is None:
                chosen.append(listed.run_id)
            else:
                left_out[reason] = left_out.get(reason, 0) + 1
        if synced.damaged:
            left_out["damaged"] = len(synced.damaged)
        chosen.reverse()
        if not chosen:
            return FrozenPast(PastRuns((), left_out))
        files = rows.write(chosen, folder)
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
    from evalcore.analytics.past import PastTables

    past = past_runs_of(manifest.settings.get("history"))
    with ExitStack() as stack:
        if not past.run_ids:
            yield PastTables(past)
            return
        folder = stack.enter_context(temporary_folder("evalcore-past-"))
        files = []
        for name in _FILES:
            path = folder / f"{name}.parquet"
            path.write_bytes(run.plan_object(run.keys.past_part(name)))
            files.append(path)
        yield PastTables(past, files[0], files[1])

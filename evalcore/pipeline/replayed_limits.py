"""What a replay takes from the recorded runs: which items a limit cut short, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import islice

from evalcore.execution.limits import PreventedItem
from evalcore.model.mode import Mode
from evalcore.model.run import Manifest, State
from evalcore.model.suite import Limits
from evalcore.storage.runs import StoredRun, list_runs, open_run

_RUNS_LOOKED_AT = 20
_RECORDING = frozenset({Mode.RECORD, Mode.AUTO})
_TIMEOUT = "timeout"
_UNPRICED = "price"


def prevented_items(run: StoredRun) -> Mapping[str, PreventedItem]:
    """Return, by execution key, the items that limits of a replayed run cut short.

    What never happened has no recording: the rows of the suite's recorded runs in the store tell.
    Only limits that the suite still has count, and of each item the newest run that has it.
    """
    limits = run.definition.limits
    kinds = _kinds(limits)
    limited = limits.budgeted or limits.max_duration_s is not None
    if not limited and not kinds:
        return {}
    recorded = list(islice(_recorded_runs(run), _RUNS_LOOKED_AT))
    while recorded and not _is_cut_short(recorded[-1]):
        recorded.pop()
    if not recorded:
        return {}
    from evalcore.analytics.prevented import prevented_rows

    with ExitStack() as stack:
        parts = []
        for manifest in recorded:
            earlier = open_run(run.store, manifest.suite, manifest.id)
            parts.append(stack.enter_context(earlier.result_files(manifest.plan)))
        return {
            key: PreventedItem(State(status), reason, kind, message)
            for key, status, reason, kind, message in prevented_rows(parts, kinds)
            if limited or kind is not None
        }


def _kinds(limits: Limits) -> frozenset[str]:
    kinds = set()
    if limits.timeout_s is not None:
        kinds.add(_TIMEOUT)
    if limits.max_cost_usd is not None:
        kinds.add(_UNPRICED)
    return frozenset(kinds)


def _recorded_runs(run: StoredRun) -> Iterator[Manifest]:
    """Yield the suite's completed runs that recorded, the newest first."""
    for manifest in list_runs(run.store, run.definition.name):
        if manifest.state is State.COMPLETED and manifest.mode in _RECORDING:
            yield manifest


def _is_cut_short(manifest: Manifest) -> bool:
    counts = manifest.counts or {}
    return bool(counts.get("skipped") or counts.get("error"))

"""Evidence of earlier runs in the place of an execution (docs/reference/engine.md).

It was chosen when the run was planned and stands beside its plan (`pipeline.reuse`): what is
executed asks no other run.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError, StoreError
from evalcore.execution.row import FinishedItem, row_metrics
from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.evidence import Evidence
from evalcore.model.run import DECIDED, State
from evalcore.planning.codec import decode_evidence
from evalcore.planning.expand import WorkItem
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun
from evalcore.trust.machine_faults import temporary_folder

REUSE_ITEMS = 10_000


class Reused(NamedTuple):
    """What an earlier run left of the same execution.

    `evidence` is None where that run got none; `row` then holds its error, `stored` what was
    measured and kept of it all the same: an answer that was cut. `graded` says that the row's
    results hold as well.
    """

    row: Mapping[str, Any]
    evidence: Evidence | None
    graded: bool
    stored: Evidence | None = None

    def finished(self, item: WorkItem, now_us: int) -> FinishedItem | None:
        """Return the item as it was finished then; None if it has to be graded again."""
        if self.row.get("reason") == DECIDED:
            skipped = FinishedItem(item, State.SKIPPED, now_us, now_us, attempts=0)
            return skipped._replace(reason=DECIDED)
        if self.evidence is None:
            error = self.row["error"] or {"kind": "evidence", "message": "no evidence is stored"}
            failed = FinishedItem(item, State.ERROR, now_us, now_us, self.stored, attempts=0)
            return failed._replace(error=error)
        if not self.graded or self.row["outcome"] is None:
            return None
        results = tuple(_result(entry) for entry in self.row["assertions"] or ())
        return FinishedItem(
            item,
            State.COMPLETED,
            now_us,
            now_us,
            self.evidence,
            results,
            self.row["score"],
            Outcome(self.row["outcome"]),
            # Why it failed although its assertions passed.
            reason=self.row.get("reason") if self.row["outcome"] == Outcome.FAILED else None,
            attempts=0,
            scores=_scorers_entries(self.row, item),
        )


class ReusedItems:
    """The stored evidence of a run's items; safe in several threads."""

    def __init__(self, run: StoredRun, *, required: bool) -> None:
        """Take a run whose plan has parts for reuse.

        `required` says that nothing may be executed: an item without evidence is in error.
        """
        self._run = run
        self._required = required
        self._lock = threading.Lock()
        self._items: dict[int, Reused] = {}

    def prepare(self, items: range) -> None:
        """Read what stands stored for these items."""
        for part in range(items.start // REUSE_ITEMS, (items.stop - 1) // REUSE_ITEMS + 1):
            rows = self._rows(part, items)
            stored = {row["item"]: self._reused(row) for row in rows}
            with self._lock:
                self._items.update(stored)

    def forget(self, item: int) -> None:
        """Let go of what stands stored for an item that has ended."""
        self._items.pop(item, None)

    def find(self, item: int) -> Reused | None:
        """Return what stands stored for an item; None if it has to be executed."""
        reused = self._items.get(item)
        if reused is None and self._required:
            message = "the run has no stored evidence of this execution; run the suite instead"
            return Reused({"error": {"kind": "evidence", "message": message}}, None, False)
        return reused

    def _rows(self, part: int, items: range) -> list[dict[str, Any]]:
        """Return the rows of these items in a part of the plan."""
        from evalcore.sql.rows import UnreadableRowsError, read_item_rows

        key = self._run.keys.reuse_part(part)
        data = self._planned(key)
        if data is None:
            if self._required:
                run = self._run.run_id
                raise StoreError(f"run {run} has no complete plan; regrade again")
            return []  # no earlier run: execute
        with temporary_folder("evalcore-reuse-") as folder:
            path = folder / "part.parquet"
            path.write_bytes(data)
            try:
                return read_item_rows(path, items)
            except UnreadableRowsError as error:
                name = key.removeprefix(self._run.keys.folder)
                damage = Damage(name, "is no whole Parquet file")
                raise DamagedRunError(self._run.run_id, (damage,)) from error

    def _planned(self, key: str) -> bytes | None:
        """Return an object of the plan; None if the plan has none there."""
        run = self._run
        if run.seal is not None:
            is_part = key.removeprefix(run.keys.plan_prefix) in run.seal.parts
            return run.plan_object(key) if is_part else None
        try:
            return run.store.get(key).data
        except ObjectNotFoundError:
            return None

    def _reused(self, row: Mapping[str, Any]) -> Reused:
        if row["status"] == State.COMPLETED:
            return Reused(row, self._evidence(row), bool(row["graded"]))
        is_error = row["status"] == State.ERROR
        return Reused(row, None, False, self._evidence(row) if is_error else None)

    def _evidence(self, row: Mapping[str, Any]) -> Evidence:
        text = row["evidence"]
        if row["evidence_ref"] is not None:
            text = self._blob(row["evidence_ref"])
        if text is not None:
            evidence = decode_evidence(orjson.loads(text))
        else:
            output = row["output"]
            if row["output_ref"] is not None:
                output = self._blob(row["output_ref"])
            evidence = Evidence(output)
        return evidence._replace(metrics=row_metrics(row))

    def _blob(self, digest: str) -> str:
        return self._run.store.get(blob_key(digest)).data.decode("utf-8", "surrogatepass")


def _result(entry: Mapping[str, Any]) -> AssertionResult:
    result = AssertionResult._make(entry.get(name) for name in AssertionResult._fields)
    return result._replace(
        outcome=Outcome(entry["outcome"]),
        message=entry["message"] or "",
        details=None if entry.get("details") is None else orjson.loads(entry["details"]),
    )


def _scorers_entries(row: Mapping[str, Any], item: WorkItem) -> list[Mapping[str, Any]]:
    """Return the scores of a stored row that are not those of its assertions."""
    from evalcore.checks.scorers import stored_raw

    metrics = {assertion.metric for assertion in item.case.assertions}
    return [
        {**entry, "raw": stored_raw(entry["raw"])}
        for entry in row["scores"] or ()
        if entry["name"] not in metrics
    ]

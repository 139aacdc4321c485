"""Stores with small runs for the history, and what its tables have to say of them."""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection

from evalcore.history.columns import TABLES
from evalcore.history.compaction import compact
from evalcore.history.files import HistoryViews
from evalcore.history.sync import rebuild, sync
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.run import GateSpec
from evalcore.model.suite import Case, Format, Policy, ScoreRule, Source, Suite, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.states import cancel_run
from evalcore.planning.spool import spool_cases
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore
from tests.support.live_run import execute
from tests.support.processes import exit_code

Rows = list[dict[str, Any]]
FIRST = datetime(2026, 1, 20, 2, tzinfo=UTC)
CONTAINS = Assertion("contains", "contains", "says-yes", {"value": "yes", "ignore_case": False})
SHORT = Assertion("max-length", "contains", "has-e", {"value": "e", "ignore_case": False})


def case_of(number: int, *, passes: bool = True, **changed: Any) -> Case:
    """Return a case with a given answer and two assertions."""
    answer = "yes" if passes else "no, never"
    metrics = Metrics(latency_ms=10.0 + number, cost_usd=0.01 * (number + 1))
    values: dict[str, Any] = {
        "id": f"case-{number}",
        "input": f"question {number}",
        "assertions": (CONTAINS, SHORT),
        "fixture": Evidence(answer, metrics=metrics),
    }
    return Case(**values | changed)


def suite_of(
    cases: Sequence[Case],
    *,
    name: str = "support",
    variants: Sequence[str] = ("default",),
    policy: Policy | None = None,
    tags: tuple[str, ...] = (),
) -> Suite:
    """Return a suite whose targets call nothing."""
    gates = (GateSpec("pass_rate", {"threshold": 0.5}), GateSpec("errors"))
    definition = SuiteDefinition(
        name=name,
        format=Format.TEST_FILE,
        source=Source("support.jsonl", "/nowhere", "0" * 64),
        policy=policy or Policy(ScoreRule.WEIGHTED, gates, threshold=0.6),
        variants=tuple(Variant(each) for each in variants),
        baseline=variants[0] if len(variants) > 1 else None,
        tags=tags,
    )
    return Suite(definition, spool_cases(cases))


def complete_run(store: ObjectStore, suite: Suite, *, day: int = 0, shards: int = 1) -> str:
    """Run a suite to its end, planned `day` days after `FIRST`; return the run's id."""
    now = FIRST + timedelta(days=day)
    run = plan_run(suite, store, PlanOptions(workers=shards), now=now)
    execute_run(run)
    with finish_run(run, now=now + timedelta(minutes=5)):
        return run.run_id


def stop_run(store: ObjectStore, suite: Suite, *, day: int = 0) -> str:
    """Plan a run, execute its first shard, stop it; return its id."""
    now = FIRST + timedelta(days=day)
    run = plan_run(suite, store, PlanOptions(single_items=True), now=now)
    execute(run, 0)
    cancel_run(run, now=now + timedelta(minutes=1))
    return run.run_id


def end_run(store: ObjectStore, run_id: str, *, day: int) -> None:
    """Resume a stopped run, and end it `day` days after `FIRST`."""
    run = find_run(store, run_id)
    execute_run(run)
    with finish_run(run, now=FIRST + timedelta(days=day)):
        pass


def stored_report(run: StoredRun) -> dict[str, Any]:
    """Return the `report.json` of a run."""
    report: dict[str, Any] = json.loads(run.store.get(run.keys.report).data)
    return report


def rows_of(store: ObjectStore, table: str) -> Rows:
    """Return all rows of a table of the history."""
    return all_rows(store, (table,))[table]


def all_rows(store: ObjectStore, tables: Collection[str] = tuple(TABLES)) -> dict[str, Rows]:
    """Return all rows of several tables of the history, by their names."""
    with HistoryViews(store, tables=tables) as views:
        return {table: _rows(views.connection, table) for table in tables}


def _rows(connection: DuckDBPyConnection, table: str) -> Rows:
    result = connection.execute(f"SELECT * FROM {table} ORDER BY ALL")
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def count_rows(store: ObjectStore) -> dict[str, Counter[str]]:
    """Return how many rows each run has in each table."""
    return {name: Counter(row["run_id"] for row in rows) for name, rows in all_rows(store).items()}


def expected_rows(store: ObjectStore, run_ids: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how many rows completed runs have to have, by their reports."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in TABLES}
    for run_id in run_ids:
        run = find_run(store, run_id)
        report = stored_report(run)
        counts["runs"][run_id] = run.manifest().plan.variants
        counts["gates"][run_id] = len(report["gates"])
        counts["cases"][run_id] = len(report["cases"])
        counts["assertions"][run_id] = sum(
            len(item["assertions"]) for case in report["cases"] for item in case["items"]
        )
    return counts


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None without values."""
    return math.fsum(values) / len(values) if values else None


OPERATIONS: dict[str, Callable[[ObjectStore], object]] = {
    "sync": sync,
    "rebuild": rebuild,
    "compact": lambda store: compact(store, drop_results_before=datetime(2030, 1, 1, tzinfo=UTC)),
}


class SteppedStore(LocalStore):
    """A store that tells each change just after it: `create` or `delete`, and what was changed."""

    def __init__(self, root: Path, told: Callable[[str], object]) -> None:
        super().__init__(root)
        self._told = told

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        """Write the object unless one exists."""
        etag = super().put_if_absent(key, data)
        self._told(f"create {_kind(key)}")
        return etag

    def delete(self, key: str) -> None:
        """Remove the object."""
        super().delete(key)
        self._told(f"delete {_kind(key)}")


def _kind(key: str) -> str:
    parts = key.split("/")
    return parts[1] if parts[0] == "history" else parts[3]


def _die_at(operation: str, root: Path, killed_step: str) -> None:
    def told(step: str) -> None:
        if step == killed_step:
            os.kill(os.getpid(), signal.SIGKILL)

    OPERATIONS[operation](SteppedStore(root, told))


def kill_at(operation: str, root: Path, step: str) -> int | None:
    """Run an operation in a process that kills itself just after the first change of a kind;
    return its exit code.
    """
    return exit_code(_die_at, operation, root, step)


def steps_of(operation: str, root: Path) -> list[str]:
    """Run an operation to its end; return the kinds of its changes, each once, in their order."""
    steps: dict[str, None] = {}
    OPERATIONS[operation](SteppedStore(root, steps.setdefault))
    return list(steps)

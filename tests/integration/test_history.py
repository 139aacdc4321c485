"""The history under faults: death at every step, several at once, a store that answers 500."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import duckdb
import pytest

from evalcore.history.compaction import compact
from evalcore.history.sync import rebuild, sync
from evalcore.model.run import GateSpec
from evalcore.model.suite import Policy, ScoreRule
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import find_run
from evalcore.storage.s3 import S3Settings, S3Store
from evalcore.storage.store import ObjectStore
from tests.support.history_stores import (
    all_rows,
    case_of,
    complete_run,
    count_rows,
    end_run,
    expected_rows,
    kill_at,
    rows_of,
    steps_of,
    stop_run,
    suite_of,
)
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy
from tests.support.shell import evalcore

CASES = (case_of(0), case_of(1, passes=False))
_TABLES = ("assertions", "cases", "gates", "runs")
_CREATED = [f"create {table}" for table in _TABLES]
_DELETED = [f"delete {table}" for table in _TABLES]
STEPS = {
    "sync": [*_CREATED, *_DELETED],
    "rebuild": ["create REBUILDING", *_CREATED, *_DELETED, "delete REBUILDING"],
    "compact": [*_CREATED, *_DELETED, "create RESULTS-DROPPED", "delete results"],
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A store, and its completed runs.

    Of one suite and month, two stand in a file each and two share one. One of each kind was resumed
    since. A run of another suite, and two that will share a file, have not entered.
    """
    folder = tmp_path_factory.mktemp("prepared")
    store = LocalStore(folder / "store")
    stopped, runs = [], []
    for day in range(2):
        stopped.append(stop_run(store, suite_of(CASES, name="a"), day=day))
        if day == 0:
            sync(store)
        runs.append(complete_run(store, suite_of(CASES, name="a"), day=day + 2))
        sync(store)
    for run in stopped:
        end_run(store, run, day=5)
    new = [complete_run(store, suite_of(CASES, name="b"), day=20)]
    new += [complete_run(store, suite_of(CASES, name="c"), day=day) for day in range(2)]
    return folder / "store", [*runs, *stopped, *new]


@pytest.fixture(scope="module")
def synced(
    prepared: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """The prepared store after a sync."""
    folder = tmp_path_factory.mktemp("synced")
    sync(copied(prepared[0], folder / "store"))
    return folder / "store", prepared[1]


def copied(prepared: Path, target: Path) -> LocalStore:
    shutil.copytree(prepared, target)
    return LocalStore(target)


@pytest.mark.parametrize("operation", STEPS)
def test_the_table_has_every_step(
    operation: str,
    prepared: tuple[Path, list[str]],
    synced: tuple[Path, list[str]],
    tmp_path: Path,
) -> None:
    copied(prepared[0] if operation == "sync" else synced[0], tmp_path / "store")
    assert sorted(steps_of(operation, tmp_path / "store")) == sorted(STEPS[operation])


# Kills on one store after another: each finds what those before it have left.


@pytest.mark.multiprocess
def test_syncs_that_are_killed_before_their_commit_are_ended_by_the_next(
    prepared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    store = copied(prepared[0], tmp_path / "store")
    before = all_rows(store)
    for step in _CREATED[:-1]:
        assert kill_at("sync", tmp_path / "store", step) == -9
        assert all_rows(store) == before  # what is not committed does not count
    assert kill_at("sync", tmp_path / "store", _CREATED[-1]) == -9
    sync(store)
    assert foreign_counts(store) == count_rows(store) == expected_rows(store, prepared[1])


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "step", [_DELETED[0], *(pytest.param(x, marks=pytest.mark.extended) for x in _DELETED[1:])]
)
def test_a_sync_that_is_killed_as_it_deletes_is_ended_by_the_next(
    prepared: tuple[Path, list[str]], tmp_path: Path, step: str
) -> None:
    store = copied(prepared[0], tmp_path / "store")
    assert kill_at("sync", tmp_path / "store", step) == -9
    sync(store)
    assert foreign_counts(store) == count_rows(store) == expected_rows(store, prepared[1])


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "tables", [_TABLES[-1:], pytest.param(_TABLES[:-1], marks=pytest.mark.extended)]
)
def test_rebuilds_that_are_killed_are_ended_by_the_next_sync(
    synced: tuple[Path, list[str]], tmp_path: Path, tables: tuple[str, ...]
) -> None:
    store = copied(synced[0], tmp_path / "store")
    expected = expected_rows(store, synced[1])
    for step in STEPS["rebuild"]:
        if not step.endswith(("REBUILDING", *tables)):
            continue
        assert kill_at("rebuild", tmp_path / "store", step) == -9
        assert foreign_counts(store) == expected
    store.put("history/REBUILDING", b"")
    sync(store)
    assert not list(store.list("history/REBUILDING"))
    assert count_rows(store) == expected


@pytest.mark.multiprocess
def test_compactions_that_are_killed_lose_and_double_nothing(
    synced: tuple[Path, list[str]], tmp_path: Path
) -> None:
    store, runs = copied(synced[0], tmp_path / "store"), synced[1]
    expected, before = expected_rows(store, runs), all_rows(store)
    for step in STEPS["compact"]:
        assert kill_at("compact", tmp_path / "store", step) == -9
        assert all_rows(store) == before
        assert foreign_counts(store) == expected
    for file in (tmp_path / "store" / "history").rglob("*.parquet"):
        os.utime(file, (0, 0))  # what a process that died has stored goes after a day
    compacted = compact(store, drop_results_before=datetime(2030, 1, 1, tzinfo=UTC))
    assert [table.files_after for table in compacted.tables] == [3] * 4
    assert sync(store).added == ()
    assert all_rows(store) == before
    assert compacted.retained == ()
    assert not any(find_run(store, run).written_shards() for run in runs)
    assert rebuild(store).unchanged == tuple(sorted(runs))
    assert all_rows(store) == before


def foreign_counts(store: LocalStore) -> dict[str, Counter[str]]:
    """Return how many rows runs have for an engine that reads the files as the reference says."""
    folder = store.url.removeprefix("file://") + "/history"
    with duckdb.connect() as connection:
        for table in ("runs", "gates", "cases", "assertions"):
            rows = (
                f"read_parquet('{folder}/{table}/*/*/*.parquet', hive_partitioning = true, "
                "hive_types_autocast = false)"
            )
            counts = (
                "QUALIFY revision = max(revision) OVER (PARTITION BY run_id)"
                if table == "runs"
                else "SEMI JOIN runs USING (run_id, revision)"
            )
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {rows} {counts}")
        return {
            table: Counter(
                dict(
                    connection.execute(
                        f"SELECT run_id, count(*) FROM {table} GROUP BY run_id"
                    ).fetchall()
                )
            )
            for table in ("runs", "gates", "cases", "assertions")
        }


def make_runs(store: ObjectStore, count: int = 2) -> list[str]:
    """Return runs in two months, of two suites."""
    return [
        complete_run(store, suite_of(CASES, name="ab"[day % 2]), day=10 * day)
        for day in range(count)
    ]


def test_several_that_sync_at_once_enter_each_run_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    runs = make_runs(store, 4)
    with ThreadPoolExecutor(4) as threads:
        synced = list(threads.map(lambda _: sync(store), range(4)))
    assert all(each.total == 4 for each in synced)
    assert count_rows(store) == expected_rows(store, runs)


def test_a_sync_during_compactions_and_rebuilds_loses_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    runs = make_runs(store, 3)
    sync(store)
    runs += [complete_run(store, suite_of(CASES, name="c"), day=day) for day in range(2)]
    actions = (sync, compact, rebuild, sync)
    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(action, store) for action in actions]:
            future.result()
    assert count_rows(store) == expected_rows(store, runs)


# S3


@pytest.fixture
def bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return S3Store(BUCKET, f"{uuid4().hex}/ä +%&", S3Settings(endpoint_url=s3.url))


@pytest.mark.s3
def test_a_bucket_has_a_history(bucket: S3Store) -> None:
    runs = make_runs(bucket, 3)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: sync(bucket), range(3)))
    assert count_rows(bucket) == expected_rows(bucket, runs)
    compact(bucket)
    rebuild(bucket)
    assert count_rows(bucket) == expected_rows(bucket, runs)


@pytest.mark.extended
@pytest.mark.s3
@pytest.mark.slow
def test_a_bucket_that_answers_500_to_half_gets_each_run_once(
    s3: S3Server, bucket: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.retryhandler.random", SimpleNamespace(random=lambda: 0.01))
    runs = make_runs(bucket)
    dice = random.Random(1)
    with faulty_proxy(s3.url) as proxy:
        proxy.rule = lambda _method, _path: (
            Fault(500, loses_answer=dice.random() < 0.5) if dice.random() < 0.5 else None
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        prefix = bucket.url.removeprefix(f"s3://{BUCKET}/")
        spoilt = S3Store(BUCKET, prefix, S3Settings(endpoint_url=proxy.url, max_attempts=12))
        sync(spoilt)
        sync(spoilt)
    assert count_rows(bucket) == expected_rows(bucket, runs)


def test_gates_have_their_number_and_its_bound(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    expected = {
        "score_at_least": (0.75, 0.6),
        "pass_rate": (0.5, 0.4),
        "error_rate_under": (0.0, 0.1),
        "latency_under": (11.0, 500.0),
        "p95_latency_under": (pytest.approx(11.0, abs=0.1), 500.0),
        "cost_under": (pytest.approx(0.03), 2.0),
        "required_cases": (None, None),
        "errors": (None, None),
    }
    gates = (
        GateSpec("score_at_least", {"threshold": 0.6}),
        GateSpec("pass_rate", {"threshold": 0.4}),
        GateSpec("error_rate_under", {"threshold": 0.1}),
        GateSpec("latency_under", {"max": 500}),
        GateSpec("p95_latency_under", {"max": 500}),
        GateSpec("cost_under", {"max": 2}),
        GateSpec("required_cases", {"case_ids": ["case-0"]}),
        GateSpec("errors"),
    )
    policy = Policy(ScoreRule.WEIGHTED, gates, threshold=0.6)
    complete_run(store, suite_of(CASES, policy=policy))
    sync(store)
    rows = {row["gate"]: (row["value"], row["threshold"]) for row in rows_of(store, "gates")}
    assert rows == expected


def test_a_case_has_no_row_of_a_variant_that_it_is_not_for(tmp_path: Path) -> None:
    path = tmp_path / "s.eval.yaml"
    path.write_text(
        """
        execution: {targets: [one, two]}
        targets: [{name: one, provider: echo}, {name: two, provider: echo}]
        tests:
          - {id: a, input: hi, execution: {targets: [one]}, assertions: [{type: equals, value: hi}]}
        """,
        "utf-8",
    )
    store = tmp_path / "store"
    ended = [evalcore("run", path, *more, store=store).code for more in ((), ("--iterations", "2"))]
    query = "SELECT variant, passed, iterations FROM cases ORDER BY iterations"
    rows = evalcore("query", query, "--format", "csv", store=store).out.splitlines()

    assert (ended, rows[1:]) == ([0, 0], ["one,true,1", "one,true,2"])

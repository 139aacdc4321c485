"""The history under faults: death at every step, several at once, a store that answers 500."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import evalcore.storage.s3 as s3_module
from evalcore.history.columns import TABLES as TABLES_BY_NAME
from evalcore.history.compaction import compact
from evalcore.history.files import table_files
from evalcore.history.sync import rebuild, sync
from evalcore.model.gate import GateSpec
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
    expected_rows,
    kill_at,
    rows_of,
    suite_of,
)
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy
from tests.support.shell import evalcore

CASES = (case_of(0), case_of(1, passes=False))
TABLES = ("assertions", "cases", "gates", "runs")
_CREATED = [f"created {table}" for table in TABLES]
_COMMITTED = ["staged", *(f"committed {table}" for table in TABLES)]
_MENDED = [f"mended {table}" for table in TABLES]
STEPS = {
    "sync": ["listed", *_CREATED, *_COMMITTED],
    "rebuild": ["marked", *_MENDED, *_CREATED, "listed", *_COMMITTED, "unmarked"],
    "compact": [
        f"{verb} {table}"
        for table in TABLES
        for verb in ("optimized", "vacuumed", "checkpointed", "shortened")
    ]
    + ["marked dropped", "deleted result"],
}


def steps_of(action: str) -> list[Any]:
    """Return the steps of an action; the nightly tests alone have those of the middle tables.

    What is done to the first and to the last table is done to those between them.
    """
    return [
        pytest.param(step, marks=pytest.mark.extended) if step.endswith(TABLES[1:-1]) else step
        for step in STEPS[action]
    ]


def make_runs(store: ObjectStore, count: int = 2) -> list[str]:
    """Return runs in two months, of two suites."""
    return [
        complete_run(store, suite_of(CASES, name="ab"[day % 2]), day=10 * day)
        for day in range(count)
    ]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Two stores with the same runs, one of them synced, and the runs."""
    folder = tmp_path_factory.mktemp("prepared")
    new, synced = LocalStore(folder / "new"), LocalStore(folder / "synced")
    runs = make_runs(new)
    shutil.copytree(folder / "new", folder / "synced")
    sync(synced)
    # A second file of the same partition: there is something to be compacted.
    last = complete_run(synced, suite_of(CASES, name="a"), day=1)
    sync(synced)
    return folder, [*runs, last]


def copied(prepared: Path, target: Path) -> LocalStore:
    shutil.copytree(prepared, target)
    return LocalStore(target)


@pytest.mark.multiprocess
@pytest.mark.parametrize("step", steps_of("sync"))
def test_a_sync_that_is_killed_is_ended_by_the_next(
    prepared: tuple[Path, list[str]], tmp_path: Path, step: str
) -> None:
    folder, runs = prepared
    store = copied(folder / "new", tmp_path / "store")
    runs = runs[:2]
    assert kill_at("sync", str(tmp_path / "store"), step) == -9
    sync(store)
    assert count_rows(store) == expected_rows(store, runs)


@pytest.mark.multiprocess
@pytest.mark.parametrize("step", steps_of("rebuild"))
def test_a_rebuild_that_is_killed_is_ended_by_the_next_sync(
    prepared: tuple[Path, list[str]], tmp_path: Path, step: str
) -> None:
    folder, runs = prepared
    store = copied(folder / "synced", tmp_path / "store")
    # An unreadable table is what a rebuild begins anew.
    log = store.local_path("history/cases/_delta_log/00000000000000000000.json")
    assert log is not None
    log.write_text("no log")
    assert kill_at("rebuild", str(tmp_path / "store"), step) == -9
    sync(store)
    assert count_rows(store) == expected_rows(store, runs)


@pytest.mark.multiprocess
@pytest.mark.parametrize("step", steps_of("compact"))
def test_a_compaction_that_is_killed_loses_and_doubles_nothing(
    prepared: tuple[Path, list[str]], tmp_path: Path, step: str
) -> None:
    folder, runs = prepared
    store = copied(folder / "synced", tmp_path / "store")
    expected = expected_rows(store, runs)
    before = all_rows(store)
    assert kill_at("compact", str(tmp_path / "store"), step) == -9
    assert count_rows(store) == expected
    compacted = compact(store, drop_results_before=datetime(2030, 1, 1, tzinfo=UTC))
    assert sync(store).added == ()
    assert all_rows(store) == before
    assert compacted.retained == ()
    assert not any(find_run(store, run).written_shards() for run in runs)
    assert len(files_of(store, "cases")) == 2
    assert rebuild(store).unchanged == tuple(sorted(runs))
    assert all_rows(store) == before


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


def files_of(store: LocalStore, table: str) -> list[str]:
    """Return the data files that the newest version of a table names."""
    return [file.key for file in table_files(store, TABLES_BY_NAME[table])]


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
    monkeypatch.setattr(s3_module, "_LONGEST_WAIT_S", 0.01)
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

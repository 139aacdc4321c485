"""Every run that has ended stands in the tables of the history exactly once, as its report says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import orjson
import pytest

from evalcore.analytics.integrity import verify_run
from evalcore.errors import StoreError
from evalcore.history.compaction import compact
from evalcore.history.files import HistoryViews, partition_suite
from evalcore.history.query import QueryError, ask
from evalcore.history.sync import rebuild, sync
from evalcore.history.trend import SuiteHistory, read_case_variances
from evalcore.model.evidence import Evidence
from evalcore.model.run import GateSpec
from evalcore.model.suite import Policy, ScoreRule
from evalcore.pipeline.plan import plan_run
from evalcore.pipeline.states import reopen_damaged
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import find_run
from tests.support.history_stores import (
    FIRST,
    case_of,
    complete_run,
    count_rows,
    end_run,
    expected_rows,
    rows_of,
    stop_run,
    suite_of,
)

TWO = (case_of(0), case_of(1, passes=False))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_ended_runs_enter_once(store: LocalStore) -> None:
    runs = [complete_run(store, suite_of(TWO, variants=("a", "b")), day=day) for day in range(3)]
    assert sync(store).added == tuple(sorted(runs))
    assert sync(store).added == ()
    assert count_rows(store) == expected_rows(store, runs)


def test_a_run_that_goes_on_is_left_for_the_next_sync(store: LocalStore) -> None:
    plan_run(suite_of(TWO), store, now=FIRST)
    assert sync(store).total == 0


def test_a_stopped_run_has_the_rows_of_its_results(store: LocalStore) -> None:
    run = stop_run(store, suite_of(TWO))
    sync(store)
    (row,) = rows_of(store, "runs")
    assert (row["run_id"], row["state"], row["decision"]) == (run, "cancelled", None)
    counts = [row[name] for name in ("planned", "completed", "error", "cancelled", "skipped")]
    assert counts == [2, 1, 0, 1, 0]
    assert [case["case_id"] for case in rows_of(store, "cases")] == ["case-0"]
    assert rows_of(store, "gates") == []


def test_a_resumed_run_replaces_its_rows(store: LocalStore) -> None:
    other = complete_run(store, suite_of(TWO), day=1)
    run = stop_run(store, suite_of(TWO))
    sync(store)
    end_run(store, run, day=2)
    assert sync(store).replaced == (run,)
    assert count_rows(store) == expected_rows(store, [run, other])


def test_a_repaired_run_replaces_its_rows(store: LocalStore) -> None:
    run = complete_run(store, suite_of(TWO))
    sync(store)
    part = store.local_path(find_run(store, run).keys.result(0))
    assert part is not None
    part.unlink()
    reopen_damaged(find_run(store, run), verify_run(find_run(store, run)))
    assert sync(store).replaced == ()
    end_run(store, run, day=3)
    assert sync(store).replaced == (run,)
    assert count_rows(store) == expected_rows(store, [run])


@pytest.mark.parametrize("damage", ["torn", "foreign", "missing", "counts", "report", "manifest"])
def test_a_damaged_run_is_told_and_stops_no_other(store: LocalStore, damage: str) -> None:
    whole, damaged = (complete_run(store, suite_of(TWO), day=day) for day in range(2))
    keys = find_run(store, damaged).keys
    part, manifest = store.local_path(keys.result(0)), store.local_path(keys.manifest)
    report = store.local_path(keys.report)
    assert part is not None
    assert manifest is not None
    assert report is not None
    match damage:
        case "torn":
            part.write_bytes(part.read_bytes()[:100])
        case "foreign":
            other = store.local_path(find_run(store, whole).keys.result(0))
            assert other is not None
            shutil.copy(other, part)
        case "missing":
            part.unlink()
        case "counts":
            text = json.loads(manifest.read_text("utf-8"))
            text["counts"] |= {"passed": 2, "failed": 0}
            manifest.write_text(json.dumps(text), "utf-8")
        case "report":
            report.write_text("{}", "utf-8")
        case "manifest":
            manifest.write_text("{}", "utf-8")
    synced = sync(store)
    assert (synced.added, list(synced.damaged)) == ((whole,), [damaged])
    assert synced.damaged[damaged]
    assert count_rows(store)["runs"] == {whole: 1}


NAMES = [
    "a/b=c %41 'x' %2F",
    "+ +ä€😀\x7f",
    "..",
    "__HIVE_DEFAULT_PARTITION__",
    '*?[a]\\b"q"',
    " both ends\nnew ",
    "'); DROP TABLE runs; --#frag?x=1&y",
]


def test_names_are_data(store: LocalStore) -> None:
    runs = {
        name: complete_run(store, suite_of(TWO, name=name, tags=(name,)), day=day)
        for day, name in enumerate(NAMES)
    }
    sync(store)
    rows = rows_of(store, "runs")
    assert {row["run_id"]: row["suite"] for row in rows} == {
        run: partition_suite(name) for name, run in runs.items()
    }
    assert {row["run_id"]: row["tags"] for row in rows} == {
        run: [name] for name, run in runs.items()
    }
    for name, run in runs.items():
        with HistoryViews(store, suites=[name]) as views:
            assert views.rows("SELECT run_id FROM runs") == [(run,)]


def test_a_suite_with_a_long_name_enters_and_is_compacted(store: LocalStore) -> None:
    runs = []
    for day in range(2):
        runs.append(complete_run(store, suite_of(TWO, name="ü" * 300), day=day))
        sync(store)
    compact(store)
    rows = rows_of(store, "runs")
    assert [(row["run_id"], row["suite"]) for row in rows] == [
        (run, partition_suite("ü" * 300)) for run in runs
    ]
    assert rows[0]["suite"].startswith("üüü")
    assert count_rows(store) == expected_rows(store, runs)


def test_only_the_runs_of_a_time_and_of_suites_are_opened(store: LocalStore) -> None:
    runs = {
        (name, day): complete_run(store, suite_of(TWO, name=name), day=day)
        for name in ("a", "b")
        for day in (0, 5, 40)
    }
    sync(store)
    since = FIRST + timedelta(days=5)
    with HistoryViews(store, suites=["a"], since=since) as views:
        ids = views.rows("SELECT DISTINCT run_id FROM cases ORDER BY 1")
    assert ids == [(runs["a", 5],), (runs["a", 40],)]


def test_what_was_not_measured_is_null(store: LocalStore) -> None:
    complete_run(store, suite_of([case_of(0, fixture=Evidence("yes"))]))
    sync(store)
    (row,), (case,) = rows_of(store, "runs"), rows_of(store, "cases")
    measures = ("p50_latency_ms", "p95_latency_ms", "cost_usd", "judge_cost_usd", "input_tokens")
    assert [row[name] for name in measures] == [None] * 5
    assert [row["score_low"], row["score_high"], row["model"]] == [None] * 3
    assert [case[name] for name in ("latency_ms", "cost_usd", "tokens", "cluster")] == [None] * 4


def test_the_interval_of_a_score_is_that_of_the_clusters(store: LocalStore) -> None:
    cases = [
        case_of(number, passes=number < 3, metadata={"customer": f"c{number // 2}"})
        for number in range(6)
    ]
    policy = Policy(ScoreRule.BLOCKS, (GateSpec("errors"),), cluster="customer")
    run = complete_run(store, suite_of(cases, policy=policy))
    sync(store)

    (row,) = rows_of(store, "runs")
    report = orjson.loads(store.get(find_run(store, run).keys.report).data)
    interval = report["summary"]["intervals"]["score"]
    assert "clustered" in interval["method"]
    ends = [row["score_low"], row["score_high"]]
    assert ends == pytest.approx([interval["low"], interval["high"]], abs=1e-6)


def test_a_rebuild_changes_nothing_and_keeps_deleted_runs(store: LocalStore) -> None:
    runs = [complete_run(store, suite_of(TWO), day=day) for day in range(3)]
    sync(store)
    before = {name: rows_of(store, name) for name in ("runs", "gates", "cases", "assertions")}
    folder = store.local_path(find_run(store, runs[0]).keys.manifest)
    assert folder is not None
    shutil.rmtree(folder.parent)
    rebuilt = rebuild(store)
    assert (rebuilt.replaced, rebuilt.unchanged) == (tuple(runs[1:]), (runs[0],))
    assert {name: rows_of(store, name) for name in before} == before


@pytest.mark.parametrize("table", ["runs", "cases"])
def test_a_file_that_is_gone_is_told_and_made_anew(
    store: LocalStore, tmp_path: Path, table: str
) -> None:
    run = complete_run(store, suite_of(TWO))
    sync(store)
    (file,) = (tmp_path / "store" / "history" / table).rglob("*.parquet")
    file.unlink()
    if table == "runs":
        assert sync(store).added == (run,)
    else:
        with pytest.raises(StoreError, match=r"history/cases/.*`evalcore history rebuild`"):
            HistoryViews(store)
        rebuild(store)
    assert count_rows(store) == expected_rows(store, [run])


def test_a_query_goes_on_beside_a_compaction(store: LocalStore) -> None:
    runs = [complete_run(store, suite_of(TWO), day=day) for day in (0, 1)]
    for run in runs:
        store.put(f"history/reopened/{run}", b"")
        sync(store)
    with HistoryViews(store) as views:
        compact(store)
        assert views.rows("SELECT DISTINCT run_id FROM cases ORDER BY 1") == [
            (run,) for run in runs
        ]


READERS: dict[str, Callable[[LocalStore], object]] = {
    "query": lambda store: _answer(store, "SELECT count(hash(rows)) FROM cases AS rows"),
    "history of a case": lambda store: _case_history(store, "case-0"),
    "earlier runs": lambda store: read_case_variances(store, "support", "0" * 64),
}


def _case_history(store: LocalStore, case: str) -> object:
    with SuiteHistory(store, "support", case_tables=True) as history:
        return history.case(case)


def _answer(store: LocalStore, sql: str) -> list[object]:
    with ask(store, sql) as answer:
        return list(answer.batches())


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_damaged_page_is_told_with_its_file(
    store: LocalStore, tmp_path: Path, read: Callable[[LocalStore], object]
) -> None:
    run = complete_run(store, suite_of([case_of(number) for number in range(30)]))
    sync(store)
    (file,) = (tmp_path / "store" / "history" / "cases").rglob("*.parquet")
    data = bytearray(file.read_bytes())
    data[4:200] = bytes(byte ^ 0xFF for byte in data[4:200])
    file.write_bytes(data)

    with pytest.raises(StoreError, match=rf"{file.name} is damaged; `evalcore history rebuild`"):
        read(store)

    rebuild(store)
    assert count_rows(store) == expected_rows(store, [run])
    read(store)


def test_a_query_that_is_wrong_is_no_damage(store: LocalStore) -> None:
    complete_run(store, suite_of(TWO))
    sync(store)
    for wrong in ("SELECT regexp_extract(case_id, '(') FROM cases", "SELECT error('x') FROM cases"):
        with pytest.raises(QueryError):
            _answer(store, wrong)

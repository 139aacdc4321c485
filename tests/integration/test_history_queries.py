"""Queries over a history: its files come first, the database stays closed, times are in UTC."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from evalcore.history.query import QueryError, QueryLimits, ask
from evalcore.history.sync import sync
from evalcore.storage.address import open_store
from tests.support.history_runs import run_outputs
from tests.support.servers import BUCKET, S3Server
from tests.support.shell import evalcore


@pytest.mark.s3
def test_a_history_in_s3_is_asked_without_network(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_store(f"s3://{BUCKET}/{uuid4().hex}")
    run = run_outputs(store, tmp_path, {"a": "good", "b": "bad"})
    sync(store)
    with ask(store, "SELECT run_id, passed_cases, cases FROM runs") as answer:
        assert next(answer.batches()) == [(run, 1, 2)]
    with ask(store, f"SELECT output FROM items('{run}') ORDER BY item") as answer:
        assert next(answer.batches()) == [("good",), ("bad",)]
    for sql in (f"FROM read_parquet('{store.url}/runs/**')", f"FROM '{store.url}/x.parquet'"):
        with (
            pytest.raises(QueryError, match=r"is refused|file system operations are disabled"),
            ask(store, sql, QueryLimits()),
        ):
            pass


SUITE = (
    "tests: [{id: a, input: q, fixtures: {output: b}, assertions: [{type: contains, value: b}]}]"
)
TIMES = (
    "SELECT started_at, started_at BETWEEN now() - INTERVAL 1 HOUR AND now() AS recent, "
    "started_at::DATE IN (current_date, current_date - 1) AS today FROM runs"
)


def test_the_history_has_the_times_of_its_runs_in_every_time_zone(tmp_path: Path) -> None:
    (tmp_path / "s.eval.yaml").write_text(SUITE, "utf-8")
    store, away = tmp_path / "store", {"TZ": "Asia/Kathmandu"}
    (report,) = evalcore(
        "run", "--json", "s.eval.yaml", store=store, cwd=tmp_path, env=away, forked=False
    ).lines
    started = report["run"]["started_at"]
    for env in (away, {"TZ": "UTC"}):
        ended = evalcore("query", TIMES, "--json", store=store, env=env, forked=False)
        assert json.loads(ended.out) == [{"started_at": started, "recent": True, "today": True}]

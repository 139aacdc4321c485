"""Queries over a history in S3: the files come first, the database stays closed."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from evalcore.history.closed import QueryLimits, ask
from evalcore.history.statement import QueryError
from evalcore.history.sync import sync
from evalcore.storage.address import open_store
from tests.support.history_runs import run_outputs
from tests.support.servers import BUCKET, S3Server


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
    with ask(store, f"SELECT output FROM items('{run[-6:]}') ORDER BY item") as answer:
        assert next(answer.batches()) == [("good",), ("bad",)]
    for sql in (f"FROM read_parquet('{store.url}/runs/**')", f"FROM '{store.url}/x.parquet'"):
        with pytest.raises(QueryError, match="no file can be read"), ask(store, sql, QueryLimits()):
            pass

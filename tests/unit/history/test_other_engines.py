"""Other engines read the tables of the history as the reference says."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from evalcore.history.columns import PARTITIONS, REVISION, TABLES
from evalcore.history.compaction import compact
from evalcore.history.sync import sync
from evalcore.storage.local import LocalStore
from tests.support.history_stores import case_of, complete_run, rows_of, suite_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several runs, compacted in between; suites with names that look like values."""
    folder = tmp_path_factory.mktemp("store") / "store"
    store = LocalStore(folder)
    cases = (case_of(0), case_of(1, passes=False))
    for day, name in ((0, "a b/ü"), (1, "a b/ü"), (2, "2026-01-01"), (20, "007")):
        complete_run(store, suite_of(cases, name=name, tags=("x", "y")), day=day)
        sync(store)
        if day == 1:
            compact(store)
    return folder


@pytest.mark.parametrize("table", TABLES)
def test_polars_reads_the_same_rows(folder: Path, table: str) -> None:
    ours = rows_of(LocalStore(folder), table)
    frame = pl.scan_parquet(
        folder / "history" / table / "*/*/*.parquet",
        hive_partitioning=True,
        hive_schema=dict.fromkeys(PARTITIONS, pl.String),
    ).collect()
    assert set(frame.columns) == {*ours[0], PARTITIONS[1], REVISION}
    theirs = frame.select(list(ours[0]))
    assert sorted(map(repr, theirs.to_dicts())) == sorted(map(repr, ours))

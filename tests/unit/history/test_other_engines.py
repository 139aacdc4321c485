"""Other engines read the tables of the history as they are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import duckdb
import polars as pl
import pytest

from evalcore.history.columns import MONTH, TABLES
from evalcore.history.compaction import compact
from evalcore.history.sync import sync
from evalcore.storage.local import LocalStore
from tests.support.history_stores import case_of, complete_run, rows_of, suite_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several runs, compacted in between."""
    folder = tmp_path_factory.mktemp("store") / "store"
    store = LocalStore(folder)
    suite = suite_of((case_of(0), case_of(1, passes=False)), name="a b/ü", tags=("x", "y"))
    for day in (0, 1, 20):
        complete_run(store, suite, day=day)
        sync(store)
        if day == 1:
            compact(store)
    return folder


@pytest.mark.parametrize("table", TABLES)
def test_polars_reads_the_same_rows(folder: Path, table: str) -> None:
    ours = rows_of(LocalStore(folder), table)
    frame = pl.scan_delta(str(folder / "history" / table)).collect()
    assert set(frame.columns) == {*ours[0], MONTH.name}
    theirs = frame.select(list(ours[0])).with_columns(
        pl.col(pl.Datetime("us", "UTC")).dt.replace_time_zone(None)
    )
    assert sorted(map(repr, theirs.to_dicts())) == sorted(map(repr, ours))


@pytest.mark.parametrize("table", TABLES)
def test_duckdbs_own_extension_reads_the_same_rows(folder: Path, table: str) -> None:
    package = find_spec("duckdb_extension_delta")
    assert package is not None
    assert package.origin is not None
    (extension,) = Path(package.origin).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.load_extension(str(extension))
        path = str(folder / "history" / table).replace("'", "''")
        rows = connection.execute(
            f"SELECT count(*), count(DISTINCT run_id), min(suite) FROM delta_scan('{path}')"
        ).fetchall()
    ours = rows_of(LocalStore(folder), table)
    assert rows == [(len(ours), len({row["run_id"] for row in ours}), "a b/ü")]

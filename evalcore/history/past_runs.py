"""Which earlier runs a new run of a suite can be compared with, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.analytics.named import query_text
from evalcore.history.tables import open_history
from evalcore.history.unreadable_files import damage_located
from evalcore.sql.connection import literal_path
from evalcore.storage.store import ObjectStore

CASES_FILE = "past_cases"
RUNS_FILE = "past_runs"


class ComparedWork(NamedTuple):
    """What runs have to share to be compared: the suite's name, its cases and judges, and whether
    answers come from recordings.
    """

    suite: str
    cases_sha256: str
    judges_sha256: str | None
    replayed: bool


class ListedRun(NamedTuple):
    """A run of the history, and why it cannot be compared; None if it can."""

    run_id: str
    reason: str | None


class PastRows:
    """The tables of the history of one suite, as they are at this moment; a context."""

    def __init__(self, store: ObjectStore, suite: str) -> None:
        self._suite = suite
        self._store = store
        self._connection = open_history(store, suites=[suite], tables=["runs", "cases"])

    def __enter__(self) -> PastRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def comparable(self, work: ComparedWork) -> Iterator[ListedRun]:
        """Yield the suite's runs, newest first."""
        parameters: Mapping[str, Any] = work._asdict()
        with damage_located(self._store):
            rows = self._connection.execute(query_text("comparable_runs"), parameters).fetchall()
        yield from (ListedRun(*row) for row in rows)

    def write(self, run_ids: list[str], folder: Path) -> dict[str, Path]:
        """Write the rows of these runs (oldest first) as Parquet files; return them by name."""
        files = {}
        for name in (RUNS_FILE, CASES_FILE):
            files[name] = folder / f"{name}.parquet"
            target = literal_path(files[name]).replace("'", "''")
            copied = f"COPY ({query_text(name)}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
            parameters = {"run_ids": run_ids, "suite": self._suite}
            with damage_located(self._store):
                self._connection.execute(copied, parameters)
        return files

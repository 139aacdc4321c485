"""The earlier runs that gates over time look back on, as tables beside those of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from evalcore.analytics.named_queries import query_text
from evalcore.model.past import PastRuns
from evalcore.sql.bounded import BoundedConnection
from evalcore.sql.connection import literal_path

_COLUMNS: Final = {
    "past_runs": "number INTEGER, run_id VARCHAR, variant VARCHAR, cases BIGINT, score DOUBLE, "
    "pass_rate DOUBLE, latency DOUBLE, cost DOUBLE",
    "past_cases": "number INTEGER, variant VARCHAR, case_id VARCHAR, cluster VARCHAR, "
    "score DOUBLE, passed BOOLEAN, wavered BOOLEAN",
}


class PastTables(NamedTuple):
    """The frozen runs, and the Parquet files with their rows; no files where there are no runs."""

    runs: PastRuns
    runs_file: Path | None = None
    cases_file: Path | None = None


def open_past(connection: BoundedConnection, past: PastTables) -> None:
    """Make the tables `past_runs` and `past_cases`, and the views of the run that gates pair them
    with: `measured_cases`, `variant_measures`.
    """
    files = {"past_runs": past.runs_file, "past_cases": past.cases_file}
    for name, path in files.items():
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({_COLUMNS[name]})")
        if path is not None:
            source = "read_parquet($file, hive_partitioning = false)"
            connection.execute(f"INSERT INTO {name} FROM {source}", {"file": literal_path(path)})
    for view in ("measured_cases", "variant_measures"):
        connection.execute(query_text(view))

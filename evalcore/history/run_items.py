"""The work items of one run as a relation."""

from __future__ import annotations

from typing import TypeAlias

import _duckdb as duckdb

from evalcore.analytics.integrity import whole_parts
from evalcore.errors import UsageError
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.runs import StoredRun

Relation: TypeAlias = duckdb.DuckDBPyRelation


def item_relation(run: StoredRun) -> Relation:
    """Return the rows of a run in the order of the plan, in a database of their own.

    Those of a remote store are fetched. Raises `UsageError` if the run has no results, and
    `DamagedRunError` if it does not have all of them.
    """
    connection = open_database()
    with whole_parts(run, run.manifest()) as parts:
        if not parts:
            raise UsageError(f"run {run.run_id} has no results")
        files = [literal_path(path) for path in parts.values()]
        query = (
            "FROM read_parquet($files, hive_partitioning = false, union_by_name = true) "
            "ORDER BY item"
        )
        if run.store.local_path(run.keys.result(min(parts))) is None:
            connection.execute(f"CREATE TABLE items AS {query}", {"files": files})
            return connection.table("items")
        return connection.sql(query, params={"files": files})

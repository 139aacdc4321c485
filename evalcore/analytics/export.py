"""A run's rows as files for others: JSON lines, CSV, Parquet; read and written as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import _duckdb as duckdb

from evalcore.analytics.named import fill_table, query_text
from evalcore.errors import StoreError, UsageError
from evalcore.model.run import Plan
from evalcore.report.document import on_one_line
from evalcore.report.escape import FORMULA_CELL, NUMBER_CELL
from evalcore.sql.connection import BoundedConnection, first_line

_INPUT_COLUMNS: Final = {"case_number": "BIGINT", "input": "VARCHAR"}
_BATCH: Final = 1_000
_ROW_GROUP: Final = 20_480


class ExportFacts(NamedTuple):
    """What the rows do not say themselves: the suite, where the run stands, its plan.

    `inputs` gives the inputs of the plan's cases in their order.
    """

    suite: str
    folder: str
    plan: Plan
    inputs: Callable[[], Iterable[str | None]]

    @property
    def parameters(self) -> dict[str, Any]:
        """The query's parameters."""
        return {
            "suite": self.suite,
            "folder": self.folder,
            "pilot": self.plan.pilot,
            "shard_size": self.plan.shard_size,
            "items_per_case": self.plan.items_per_case,
            "iterations": self.plan.iterations,
            "round_shards": self.plan.round_shards if self.plan.by_round else 0,
        }


def export_rows(
    connection: BoundedConnection,
    facts: ExportFacts,
    row_format: str,
    path: Path,
    *,
    append: bool = False,
) -> None:
    """Write the rows of the files that the connection's variable `files` names.

    `append` adds JSON lines to a file. Raises `UsageError` if the file cannot be written.
    """
    query = query_text("export_rows")
    try:
        inputs = ({"case_number": n, "input": text} for n, text in enumerate(facts.inputs()))
        fill_table(connection, "case_inputs", _INPUT_COLUMNS, inputs)
        if row_format == "jsonl":
            _write_lines(connection, query, facts, path, "ab" if append else "wb")
        elif row_format == "csv":
            query = _for_csv(connection, query, facts)
            _copy(connection, query, facts, path, "FORMAT csv, HEADER true")
        else:
            options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP}"
            _copy(connection, query, facts, path, options)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    except duckdb.IOException as error:
        raise UsageError(f"{path} cannot be written: {first_line(error)}") from error
    except duckdb.Error as error:
        raise StoreError(f"the rows cannot be exported: {first_line(error)}") from error


def _write_lines(
    connection: BoundedConnection, query: str, facts: ExportFacts, path: Path, mode: str
) -> None:
    result = connection.execute(
        f"SELECT to_json(row)::VARCHAR FROM ({query}) AS row",  # noqa: S608  (a query of ours)
        facts.parameters,
    )
    with path.open(mode) as file:
        while batch := result.fetchmany(_BATCH):
            text = "".join(f"{line}\n" for (line,) in batch)
            file.write(on_one_line(text).encode("utf-8"))


def _for_csv(connection: BoundedConnection, query: str, facts: ExportFacts) -> str:
    """Return the query with texts that no spreadsheet calculates, and nested values as JSON."""
    described = connection.execute(f"FROM ({query}) LIMIT 0", facts.parameters).description
    formula, number = (pattern.replace("'", "''") for pattern in (FORMULA_CELL, NUMBER_CELL))
    columns = []
    for quoted, kind in ((f'"{name}"', str(kind)) for name, kind, *_ in described or ()):
        if kind in {"VARCHAR", "JSON"}:
            columns.append(
                f"CASE WHEN regexp_matches({quoted}, '^(?:{formula})')"
                f" AND NOT regexp_full_match({quoted}, '{number}')"
                f" THEN '''' || {quoted} ELSE {quoted} END AS {quoted}"
            )
        elif kind.endswith("]") or kind.startswith(("STRUCT", "MAP")):
            columns.append(f"to_json({quoted})::VARCHAR AS {quoted}")
    return f"SELECT * REPLACE ({', '.join(columns)}) FROM ({query})"  # noqa: S608  (names of ours)


def _copy(
    connection: BoundedConnection, query: str, facts: ExportFacts, path: Path, options: str
) -> None:
    quoted = str(path).replace("'", "''")
    connection.execute(f"COPY ({query}) TO '{quoted}' ({options})", facts.parameters)

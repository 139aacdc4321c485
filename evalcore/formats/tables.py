"""Tests from a table's rows: CSV or Parquet, one test a row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evalcore.errors import LoadError, Problem
from evalcore.formats.problems import Problems, suggest
from evalcore.formats.test_file_shapes import ASSERTION_COLUMNS
from evalcore.sql.tables import TableError, read_rows

_FIELDS = ("id", "input", "criteria", "expected_output", "output", "tags", "threshold", "target")
_JSON_FIELDS = ("assertions", "metadata")


def is_table(path: Path) -> bool:
    """Whether the file is read as a table, by its suffix."""
    return path.suffix.lower() in {".csv", ".parquet"}


def table_tests(path: Path, name: str, columns: Mapping[str, str]) -> Iterator[Any]:
    """Yield each row as a raw test together with the collector of its mistakes.

    `columns` maps a test's field (or `metadata.x`, or an assertion type) to the table's column.
    Columns named like a field or a simple assertion type are taken as such; any other becomes
    metadata. Raises `LoadError` for a table that cannot be read.
    """
    rows = _Rows(path, name)
    try:
        for index, row in enumerate(read_rows(path)):
            rows.index = index
            if index == 0:
                _check_columns(row, columns, rows.problems)
            yield _test_of(row, columns, rows.problems, is_csv=rows.is_csv), rows.problems
    except TableError as error:
        raise LoadError((Problem(name, None, "", f"cannot be read: {error}"),)) from error


class _Rows:
    """Where the reader is, and the collector that turns it into a line."""

    def __init__(self, path: Path, name: str) -> None:
        self.index = 0
        self.is_csv = path.suffix.lower() == ".csv"
        self._path = path
        self.problems = Problems(name, lambda _: self.line())

    def line(self) -> int | None:
        """Return the line of a CSV row (found by reading again), or the number of a Parquet row."""
        if not self.is_csv:
            return self.index + 1
        with self._path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.reader(file)
            for number, _ in enumerate(reader):
                if number == self.index:
                    return reader.line_num + 1
        return None


def _check_columns(row: Mapping[str, Any], columns: Mapping[str, str], problems: Problems) -> None:
    for field, column in columns.items():
        if column not in row:
            message = f"'{field}' names the column '{column}', which the table does not have."
            problems.add(("columns", field), message + suggest(column, row))
    for field in ("id", "input"):
        if columns.get(field, field) not in row:
            message = f"no column '{field}'; map one with `columns: {{{field}: NAME}}`."
            problems.add((), message + suggest(field, row))


def _test_of(  # noqa: C901  (a table in the form of branches)
    row: Mapping[str, Any], columns: Mapping[str, str], problems: Problems, *, is_csv: bool
) -> dict[str, Any]:
    """Return the raw test of one row; None cells are absent fields."""
    used = {column: field for field, column in columns.items()}
    test: dict[str, Any] = {}
    assertions: list[dict[str, Any]] = []
    for column, value in row.items():
        field = used.get(column, column)
        if field == "output":
            # An empty cell of a CSV is an empty answer: NULL cannot be written there.
            if value is not None or is_csv:
                test["fixtures"] = {"output": "" if value is None else _text(value)}
        elif value is None:
            continue
        elif field in ASSERTION_COLUMNS:
            assertions.append({"type": field, "value": _assertion_value(field, value)})
        elif field in _JSON_FIELDS:
            test[field] = _json_cell(value, field, problems)
        elif field == "tags":
            test["tags"] = _list_cell(value)
        elif field in {"threshold", "target"}:
            execution = test.setdefault("execution", {})
            execution[field] = _number(value) if field == "threshold" else value
        elif field in _FIELDS:
            test[field] = _text(value) if field == "id" or is_csv else value
        else:
            test.setdefault("metadata", {})[field.removeprefix("metadata.")] = value
    if assertions:
        given = test.get("assertions")
        test["assertions"] = assertions + (given if isinstance(given, list) else [])
    return test


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _assertion_value(kind: str, value: Any) -> Any:
    """Return a cell as an assertion's value: lists as JSON or, in a CSV, separated by `|`."""
    if not kind.endswith(("-any", "-all")):
        return _text(value)
    return _list_cell(value, separator="|")


def _list_cell(value: Any, separator: str = ",") -> Any:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return [part.strip() for part in value.split(separator) if part.strip()]


def _json_cell(value: Any, field: str, problems: Problems) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        problems.add((field,), f"the cell is not JSON: {error}")
        return [] if field == "assertions" else {}

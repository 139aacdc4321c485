"""Rows of an answer as text: a table for people, CSV that no spreadsheet calculates, JSON."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import orjson

from evalcore.report.document import on_one_line
from evalcore.report.escape import inert_cell

Rows = Iterable[Sequence[tuple[Any, ...]]]
"""Rows in batches."""

_WIDEST: Final = 48


def json_value(value: Any) -> Any:
    """Return a value of the database as JSON holds it. Times without a zone are in UTC."""
    match value:
        case None | str() | bool() | float():
            return value
        case int():
            return value if abs(value) < 2**63 else float(value)
        case Decimal():
            return float(value)
        case datetime():
            text = value.isoformat()
            return text if value.tzinfo is not None else f"{text}Z"
        case date() | time():
            return value.isoformat()
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case bytes():
            return value.hex()
        case _:
            return str(value)


def render_json(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield one array with an object for each row."""
    separator = "["
    for batch in rows:
        for row in batch:
            values = map(json_value, row)
            yield separator + _json(dict(zip(columns, values, strict=True)))
            separator = ",\n"
    yield "[]\n" if separator == "[" else "]\n"


def render_csv(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield CSV with a header; nested values are JSON."""
    yield _csv_line([inert_cell(name) for name in columns])
    for batch in rows:
        yield "".join(_csv_line([_csv_cell(value) for value in row]) for row in batch)


def render_table(
    columns: Sequence[str], rows: Rows, clean: Callable[[str], str], *, widest: int = _WIDEST
) -> Iterator[str]:
    """Yield the lines of a table; `clean` makes foreign text safe for one line of a terminal."""
    values = [row for batch in rows for row in batch]
    cells = [[clean(name) for name in columns]]
    cells += [[_cut(clean(_cell(value)), widest) for value in row] for row in values]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    numeric = [
        any(_is_number(row[index]) for row in values)
        and all(row[index] is None or _is_number(row[index]) for row in values)
        for index in range(len(columns))
    ]
    for number, line in enumerate(cells):
        padded = [
            " " * (width - _width(cell)) + cell if right else cell + " " * (width - _width(cell))
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        yield "  ".join(padded).rstrip()
        if not number:
            yield "  ".join("─" * width for width in widths)


def _json(value: Any) -> str:
    return on_one_line(orjson.dumps(value).decode("utf-8", "replace"))


def _csv_line(cells: Sequence[str]) -> str:
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _csv_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return inert_cell(value)
        case bool():
            return "true" if value else "false"
        case list() | tuple() | Mapping():
            return _json(json_value(value))
        case _:
            return str(json_value(value))


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="seconds")
        case list() | tuple() | Mapping():
            return _json(json_value(value))
        case _:
            return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cut(text: str, widest: int) -> str:
    return text if len(text) <= widest else f"{text[: widest - 1]}…"


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)

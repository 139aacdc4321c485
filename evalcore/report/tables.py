"""Text in the cells of a terminal: cut to a width, set in columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import orjson
from rich.cells import cell_len, chop_cells

from evalcore.report.document import on_one_line
from evalcore.report.escape import inert_cell


def cut(text: str, width: int) -> str:
    """Return `text` if it fits into `width` cells, else its beginning and `…`."""
    if cell_len(text) <= width:
        return text
    head = chop_cells(text[: 4 * width], width - 1)[0] if width > 1 else ""
    return f"{head}…"


def wrap(text: str, width: int) -> Iterator[str]:
    """Yield the lines of at most `width` cells that a text needs, broken at spaces where possible.

    A word that is longer than a line is broken within; nothing is left out.
    """
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_len(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        *full, line = chop_cells(word, width) or [word]
        yield from full
    yield line


def table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield rows with the first column left and the others right aligned.

    The first one is cut as far as its texts stay different.
    """
    widths = [max(cell_len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[0] = max(8, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))
    names = {row[0] for row in rows}
    while len({cut(name, widths[0]) for name in names}) < len(names):
        widths[0] += 1
    right = [number > 0 for number in range(len(widths))]
    for row in rows:
        yield _padded([cut(row[0], widths[0]), *row[1:]], widths, right)


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
    cells += [[cut(clean(_cell(value)), widest) for value in row] for row in values]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        {_is_number(row[index]) for row in values if row[index] is not None} == {True}
        for index in range(len(columns))
    ]
    for number, line in enumerate(cells):
        yield _padded(line, widths, numeric)
        if not number:
            yield "  ".join("─" * width for width in widths)


def _padded(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    gaps = [" " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    padded = [
        gap + cell if is_right else cell + gap
        for cell, gap, is_right in zip(cells, gaps, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


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
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return value if isinstance(value, str) else _csv_cell(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)

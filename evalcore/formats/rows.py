"""Rows of data as tests: CSV, Parquet, JSON lines, JSON with named columns; one test a row."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

from evalcore.checks.registry import assertion_words, column_types
from evalcore.errors import LoadError, Problem
from evalcore.formats.documents import (
    TOO_LARGE,
    decode,
    json_reason,
    parse_json,
    parse_row,
    parse_written,
    raise_problem,
    read_document,
    refuse_utf16,
    too_large_at,
)
from evalcore.planning.row_ranges import ALL_LINES, LineRange
from evalcore.problems import Problems
from evalcore.wording import Loc, counted, describe, suggest, value_text

MAX_CELL_CHARACTERS = 16 * 1024 * 1024
_DELIMITERS = ",;\t|"
# What Excel reads and writes before the header to name the separator.
_NAMED_DELIMITER = re.compile(r'"?sep=([,;\t|])"?\s*', re.IGNORECASE)


class CsvRows:
    """The rows of a file; `line` is that of the row that is being read."""

    def __init__(self, path: Path, name: str) -> None:
        self.line = self.header_line = 1
        self.header: tuple[str, ...] = ()
        self._path = path
        self._name = name

    def read(self, problems: Problems) -> Iterator[dict[str, str | None]]:
        """Yield each row's cells by column, an empty one as None; note rows that do not fit.

        The header is read first and `header` set. Raises `LoadError` where reading cannot go on.
        """
        csv.field_size_limit(MAX_CELL_CHARACTERS)
        try:
            with self._path.open(newline="", encoding="utf-8-sig") as file:
                delimiter, before = self._preface()
                reader = csv.reader(_lines(file), delimiter=delimiter, strict=True)
                self.line = self.header_line = before + 1
                self._read_header(islice(reader, before, None), problems)
                names = self.header
                while True:
                    self.line = reader.line_num + 1
                    cells = next(reader, None)
                    if cells is None:
                        return
                    # Programs write rows that were emptied, and blank ones below the last.
                    if not any(cells):
                        continue
                    if len(cells) == len(names) and "" not in names:
                        yield {name: cell or None for name, cell in zip(names, cells, strict=True)}
                    else:
                        row = self._uneven(cells, problems)
                        if row is not None:
                            yield row
        except csv.Error as error:
            raise_problem(self._name, self.line, _csv_reason(error))
        except UnicodeDecodeError:
            self._raise_undecodable()
            raise

    def _preface(self) -> tuple[str, int]:
        """Return what separates cells, and how many lines stand before that of the header.

        Those are lines without text, and one that names the separator. Where none does, it is the
        character that the header has most of.
        """
        named = None
        with self._path.open("rb") as file:
            for number in count():
                line = file.readline(MAX_CELL_CHARACTERS)
                text = decode(line, self._name)
                if number == 0 and (named := _NAMED_DELIMITER.fullmatch(text)):
                    continue
                if not line or text.strip(_DELIMITERS + " \r\n"):
                    break
        counts = Counter(text)
        return named[1] if named else max(_DELIMITERS, key=lambda each: counts[each]), number

    def _read_header(self, reader: Iterator[list[str]], problems: Problems) -> None:
        names = tuple(name.strip() for name in next(reader, []))
        if not any(names):
            raise_problem(self._name, None, "is empty: the first line names the columns")
        for name, number in Counter(filter(None, names)).items():
            if number > 1:
                problems.add((), f"the column '{name}' is there {number} times; rename all but one")
        last = max(column for column, name in enumerate(names) if name)
        for column in (column for column in range(last) if not names[column]):
            message = f"column {column + 1} has no name; name the column, or leave it out"
            raise_problem(self._name, self.line, message)
        self.header = names

    def _uneven(self, cells: Sequence[str], problems: Problems) -> dict[str, str | None] | None:
        """Return the row if only empty cells make it uneven; note it if not."""
        names = self.header
        columns = counted(len(list(filter(None, names))), "column")
        if len(cells) < len(names):
            problems.add((), f"{counted(len(cells), 'cell')}, but the header names {columns}")
            return None
        named = {name: cell or None for name, cell in zip(names, cells, strict=False) if name}
        if any(cells[len(named) :]):
            message = f"{counted(len(cells), 'cell')}, but the header names {columns}; "
            problems.add((), f"{message}quote a cell that contains the separator")
            return None
        return named

    def _raise_undecodable(self) -> None:
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    decode(line, self._name)
                except LoadError as error:
                    message = error.problems[0].message
                    raise LoadError((Problem(self._name, number, "", message),)) from None


def _lines(file: TextIO) -> Iterator[str]:
    """Yield the lines; raise `csv.Error` for one that is longer than a cell may be."""
    for line in iter(partial(file.readline, MAX_CELL_CHARACTERS + 1), ""):
        if len(line) > MAX_CELL_CHARACTERS:
            raise csv.Error("field larger than the limit")
        yield line


def _csv_reason(error: csv.Error) -> str:
    reason = str(error)
    if "unexpected end of data" in reason:
        return "a quote that is opened in this row is never closed"
    if "expected after" in reason:
        return "text after a closing quote; a quote inside a quoted cell is written twice"
    if "field larger" in reason:
        return f"a cell of more than {MAX_CELL_CHARACTERS} characters; is a quote not closed?"
    if "new-line character" in reason:
        return "a line break of another kind than the first; save it with one kind"
    return f"not valid CSV: {reason}"


NO_TEST: Final = object()
# The names of the key that holds the tests, and the files that are nothing but tests.
TESTS_KEYS: Final = ("tests", "eval_cases", "evalcases")
ROW_SUFFIXES: Final = frozenset({".jsonl", ".csv", ".parquet"})


class RawTest(NamedTuple):
    """A test, where it stands, and the collector of its mistakes.

    `marked` says whether `${{ … }}` in its text is a reference, `is_data` whether it is a row of
    data, whose text is never one and which may add nothing that runs. The value `NO_TEST` only
    hands over a collector, so that a file with mistakes and without any test is reported.
    """

    value: Any
    loc: Loc
    problems: Problems
    marked: bool = True
    is_data: bool = False


def name_by_number(row: dict[str, Any]) -> None:
    """Make the id of a row that is a whole number a text: exports have such ids."""
    if type(row.get("id")) is int:
        row["id"] = str(row["id"])


def move_output(row: dict[str, Any], loc: Loc, problems: Problems) -> None:
    """Put the column `output` where a test has its given answer; note one that is null."""
    output = row.pop("output")
    if output is None:
        message = "is null, which is no answer: leave it out, and the target is asked"
        problems.add((*loc, "output"), message)
        return
    if "fixtures" in row:
        problems.add((*loc, "output"), "is given here and as 'fixtures'; remove one of them")
        return
    row["fixtures"] = {"output": value_text(output)}


MAX_LINE_BYTES: Final = 16 * 1024 * 1024


def jsonl_tests(path: Path, name: str, chosen: LineRange = ALL_LINES) -> Iterator[RawTest]:
    """Yield one test a line; blank lines are skipped, a line that is not JSON is a mistake."""
    rows = JsonRows(path, name)
    problems = Problems(name, lambda _: rows.number, cheap=True)
    for value in rows.lines(problems, chosen):
        if type(value) is dict:
            name_by_number(value)
            if "output" in value:
                move_output(value, (), problems)
        yield RawTest(value, (), problems, False, True)
    yield RawTest(NO_TEST, (), problems)


def _line_value(line: bytes, problems: Problems) -> Any:
    """Return what a line holds; `NO_TEST` for a blank one and, noted, for one that is wrong."""
    problems.replaced = ()
    try:
        value = parse_json(line)
    except ValueError as error:
        try:
            value, problems.replaced = parse_written(line, error)
        except ValueError:
            if line.strip():
                problems.add((), _line_reason(line, error))
            return NO_TEST
    if (loc := too_large_at(line, value)) is not None:
        problems.add(loc, TOO_LARGE)
        return NO_TEST
    return value


def open_reason(error: OSError) -> str:
    """Return why a file of tests cannot be opened, in our words."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a folder; name a file"
    return f"cannot be read: {error.strerror}"


def _line_reason(line: bytes, error: ValueError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        return f"not UTF-8 (byte 0x{line[broken.start]:02x}); save it as UTF-8"
    hint = " (each line is a test of its own)" if "EOF while" in str(error) else ""
    return f"not valid JSON: {json_reason(error)}{hint}"


class JsonRows:
    """The rows of a file; `columns` are the keys of those that were read, in their order.

    `number` is that of the line that is being read.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.columns: dict[str, None] = {}
        self.number: int | None = 0
        self._path, self._name = path, name

    def read(self, problems: Problems) -> Iterator[dict[str, Any]]:
        """Yield the objects; note other values. Raises `LoadError` for a file of another form."""
        in_lines = self._path.suffix.lower() == ".jsonl"
        for row in self.lines(problems) if in_lines else self._listed():
            if isinstance(row, dict):
                self.columns |= dict.fromkeys(row)
                yield row
            else:
                problems.add((), f"expected a mapping, got {describe(row)}")

    def lines(self, problems: Problems, chosen: LineRange = ALL_LINES) -> Iterator[Any]:
        """Yield the values of a file of JSON lines; note lines that hold none.

        A line of more than `MAX_LINE_BYTES` is never read whole.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(chosen.start)
                lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
                for self.number, line in enumerate(islice(lines, chosen.size), chosen.before + 1):
                    if self.number == 1:
                        refuse_utf16(line, self._name)
                        line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901
                    if len(line) > MAX_LINE_BYTES:
                        limit = MAX_LINE_BYTES // 2**20
                        message = f"a line of more than {limit} MiB; move the input to a file"
                        problems.add((), message)
                        while line and not line.endswith(b"\n"):
                            line = file.readline(MAX_LINE_BYTES)  # noqa: PLW2901
                        continue
                    value = _line_value(line, problems)
                    if value is not NO_TEST:
                        yield value
        except OSError as error:
            raise_problem(self._name, None, open_reason(error))

    def _listed(self) -> Iterator[Any]:
        document = read_document(self._path, self._name)
        rows, loc = listed_rows(document.value)
        if not isinstance(rows, list):
            raise_problem(self._name, document.locate(loc), "expected a list of rows")
        for index, row in enumerate(rows):
            self.number = document.locate((*loc, index))
            yield row


def listed_rows(value: Any) -> tuple[Any, Loc]:
    """Return the list of a document that holds nothing but tests, and where it stands."""
    for key in ("tests", "cases") if isinstance(value, dict) else ():
        if key in value:
            return value[key], (key,)
    return value, ()


_FIELDS: Final = (
    *("id", "input", "criteria", "expected_output", "output", "tags", "threshold", "target"),
    *("assertions", "metadata"),
)


_TABLES: Final = frozenset({".csv", ".parquet"})
_JSON: Final = frozenset({".json", ".jsonl"})
# What a test holds that no cell does: rows of JSON may. As a column it is a mistake.
_PARTS: Final = frozenset(
    {"assert", "evaluators", "execution", "expected_outcome", "fixtures", "input_files"}
    | {"rubrics", "turns", "vars", "workspace"}
)

# Columns that people call by another name, and what they may mean.
_OTHER_NAMES: Final = {
    **dict.fromkeys(("assert", "assertion", "evaluator", "evaluators"), "assertions"),
    **dict.fromkeys(("expect", "expected", "expectedanswer", "ideal"), "expected_output"),
    **dict.fromkeys(("expectedresponse", "expectedresult"), "expected_output"),
    "expectedoutcome": "criteria",
    "rubric": "rubrics",
}

REQUIRED: Final = ("id", "input")
"""The columns without which a table is no table of tests."""


def is_table(path: Path, columns: Mapping[str, str]) -> bool:
    """Whether the file is read as a table: by its suffix, JSON where `columns` are named."""
    suffix = path.suffix.lower()
    return suffix in _TABLES or (bool(columns) and suffix in _JSON)


def table_tests(
    path: Path,
    name: str,
    columns: Mapping[str, str],
    suite: Problems,
    required: Sequence[str] = REQUIRED,
) -> Iterator[RawTest]:
    """Yield each row as a raw test.

    `columns` maps a test's field (or `metadata.x`, or an assertion type) to the table's column,
    which may be that of several fields; mistakes in it are noted in `suite`. Columns named like a
    field or a simple assertion type are taken as such; one with nearly such a name, or that of
    another assertion type, is a mistake; any other becomes metadata. A table that
    lacks a column of `columns`, or a `required` one, gives no test; of JSON, whose rows may leave
    out what they lack, the first row has to have the `required` ones, and any row the others.
    Raises `LoadError` for a table that cannot be read.
    """
    table = _Table(path, name, columns, required)
    yield RawTest(NO_TEST, (), table)
    in_all = {field: columns[field] for field in required if field in columns}
    at_first = columns if table.json is None else in_all
    rows = table.rows()
    for table.index, row in enumerate(rows):
        if table.index == 0 and not _has_columns(row, columns, at_first, table, suite):
            return
        before = table.count
        test = table.test_of(row)
        if table.count == before:
            yield RawTest(test, (), table, marked=False, is_data=True)
    if table.index < 0 and table.csv:
        header = tuple(filter(None, table.csv.header))
        _has_columns(header, columns, columns, table, suite)
    elif table.json:
        later = {field: column for field, column in columns.items() if field not in in_all}
        _note_columns(table.json.columns, later, table, suite)


def _parquet_rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    from evalcore.sql.tables import TableError, read_rows

    try:
        yield from read_rows(path)
    except TableError as error:
        reason = str(error).removeprefix("Invalid Input Error: ")
        message = f"cannot be read as Parquet: {reason}"
        raise LoadError((Problem(name, None, "", message),)) from error


def _has_columns(
    header: Collection[str],
    columns: Mapping[str, str],
    in_header: Mapping[str, str],
    table: _Table,
    suite: Problems,
) -> bool:
    """Note columns that are missing, and keys of `columns` that are no field of a test.

    `in_header` is the part of `columns` that has to be there.
    """
    before = table.count + suite.count
    fields = (*_FIELDS, *column_types(), "metadata.NAME")
    for field in columns:
        is_field = field in fields or field.replace("_", "-") in fields
        if not is_field and not field.startswith("metadata."):
            message = f"'{field}' is no field of a test." + suggest(field, fields)
            suite.add(("columns", field), message)
    _note_columns(header, in_header, table, suite)
    for field in table.required:
        if field not in columns and field not in header:
            beside = Path(table.file).with_suffix(".yaml").name
            where = suite.file if suite.file != table.file else f"{beside} beside it"
            columns_key = f"`columns: {{{field}: …}}`"
            message = f"has no column '{field}'; name another in {where}: {columns_key}."
            line = table.csv.header_line if table.csv else None
            table.include([Problem(table.file, line, "", message + suggest(field, header))])
    return table.count + suite.count == before


def _note_columns(
    header: Collection[str], columns: Mapping[str, str], table: _Table, suite: Problems
) -> None:
    for field, column in columns.items():
        if column not in header:
            message = f"{table.file} has no column '{column}'."
            suite.add(("columns", field), message + suggest(column, header))


class _Table(Problems):
    """A table being read: where the reader is, and what its columns stand for.

    As a collector it names the column in the place of the path into a test.
    """

    def __init__(
        self, path: Path, name: str, columns: Mapping[str, str], required: Sequence[str]
    ) -> None:
        self.required = required
        super().__init__(name, lambda _: self.line(), cheap=True)
        suffix = path.suffix.lower()
        self.csv = CsvRows(path, name) if suffix == ".csv" else None
        self.json = JsonRows(path, name) if suffix in _JSON else None
        self.index = -1
        self._path = path
        self._columns = columns
        self._fields: dict[str, list[str]] = {}
        for field, column in columns.items():
            self._fields.setdefault(column, []).append(field)
        self._checks: list[str] = []
        self._types = {name.replace("-", mark): name for name in column_types() for mark in "-_"}
        self._meanings: dict[str, str | None] = {}
        self._noted_at: int | None = -1
        self._noted_here: set[tuple[Loc, str]] = set()

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the cells of each row by column."""
        if self.csv:
            return self.csv.read(self)
        return self.json.read(self) if self.json else _parquet_rows(self._path, self.file)

    def line(self) -> int | None:
        """Return the line of a row in CSV or JSON, or the number of a Parquet row (from 1)."""
        if self.json:
            return self.json.number
        return self.csv.line if self.csv else self.index + 1

    def add(self, loc: Loc, message: str, *, label: str = "") -> None:
        """Note a mistake at a path into the row's test, once for each column and message."""
        mistake = (self._in_table(loc), message)
        if self._noted_at != self.line():
            self._noted_at, self._noted_here = self.line(), set()
        if mistake not in self._noted_here:
            self._noted_here.add(mistake)
            super().add(mistake[0], message, label=label)

    def _in_table(self, loc: Loc) -> Loc:
        if loc[:1] == ("assertions",) and len(loc) > 1 and isinstance(loc[1], int):
            own = loc[1] - len(self._checks)
            return ("assertions", own, *loc[2:]) if own >= 0 else (self._checks[loc[1]], *loc[3:])
        if loc[:1] in {("execution",), ("fixtures",)}:
            loc = loc[1:]
        return (self._columns.get(str(loc[0]), loc[0]), *loc[1:]) if loc else ()

    def test_of(self, row: Mapping[str, Any]) -> dict[str, Any]:  # noqa: C901, PLR0912  (a table in the form of branches)
        """Return the raw test of one row; None cells are absent fields."""
        parts = self._parts_of(row)
        test: dict[str, Any] = {**parts}
        assertions: list[dict[str, Any]] = []
        metadata: dict[str, Any] = {}
        self._checks = []
        for column, field, value in self._cells(row):
            # An empty cell of a CSV is an empty answer: NULL cannot be written there.
            if field == "output" and (value is not None or self.csv):
                if "fixtures" in parts:
                    self.add(("output",), "is given here and as 'fixtures'; remove one of them")
                test["fixtures"] = {"output": "" if value is None else value_text(value)}
            elif value is None or field in parts or self._is_empty(field, value):
                continue
            elif field in self._types:
                assertion = self._assertion(self._types[field], field, value)
                if assertion is not None:
                    assertions.append(assertion)
                    self._checks.append(column)
            elif field in {"assertions", "metadata"}:
                test[field] = self._json_cell(value, field)
            elif field == "tags":
                test["tags"] = _list_cell(value)
            elif field in {"threshold", "target"}:
                cell = _number(value) if field == "threshold" else value
                test["execution"] = _with(test.get("execution", {}), field, cell)
            elif field in _FIELDS:
                test[field] = value_text(value) if field == "id" else value
            else:
                self._note_meaning(column, field)
                metadata[field.removeprefix("metadata.")] = value
        own_metadata = test.get("metadata", {})
        if metadata and isinstance(own_metadata, dict):
            test["metadata"] = {**own_metadata, **metadata}
        if assertions:
            own = test.get("assertions")
            test["assertions"] = assertions + (own if isinstance(own, list) else [])
        return test

    def _is_empty(self, field: str, value: Any) -> bool:
        """Whether a cell of a CSV holds nothing but blanks, and nothing was meant by them."""
        is_text = field in {"input", "output"}
        return self.csv is not None and not is_text and isinstance(value, str) and not value.strip()

    def _assertion(self, kind: str, field: str, value: Any) -> dict[str, Any] | None:
        """Return the assertion of a cell; None where it asks for none, or is wrong and noted."""
        if kind.endswith("is-json"):
            asserts_json = _TRUTHS.get(str(value).strip().lower())
            if asserts_json is None:
                message = f"expected true or false, got {describe(value)}"
                self.add((field,), message)
            return {"type": kind} if asserts_json else None
        return {"type": kind, "value": _assertion_value(kind, value)}

    def _note_meaning(self, column: str, field: str) -> None:
        """Note, once, a column that would be metadata although its name is that of a check."""
        if field != column or field.startswith("metadata."):
            return
        if column not in self._meanings:
            meaning = self._meanings[column] = _meaning(column)
            if meaning is not None:
                line = self.csv.header_line if self.csv else self.line()
                keep = f"or call it 'metadata.{column}' to keep it as metadata"
                self.include([Problem(self.file, line, column, f"{meaning}, {keep}")])

    def _parts_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a row of JSON holds as a test does, apart from columns with other names."""
        if self.json is None:
            return {}
        return {key: row[key] for key in row if key in _PARTS and key not in self._fields}

    def _cells(self, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
        """Yield each cell's column, a field that it is, and its value."""
        for column, value in row.items():
            for field in self._fields.get(column, (column,)):
                yield column, field, value

    def _json_cell(self, value: Any, field: str) -> Any:
        if not isinstance(value, str):
            return value
        try:
            parsed = parse_row(value.encode()).value
        except ValueError as error:
            self.add((field,), f"the cell is not JSON: {json_reason(error)}")
            return None
        if (loc := too_large_at(value.encode(), parsed)) is not None:
            self.add((field, *loc), TOO_LARGE)
        return parsed


_TRUTHS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@cache
def _meaning(column: str) -> str | None:
    """Return what a column's name probably means, if that is a check; None for any other."""
    written = _letters(column)
    word = written.rstrip("0123456789")  # `contains.1`, promptfoo's `__expected2`
    types = {_letters(name): name for name in column_types()}
    checks = {_letters(name): name for name in assertion_words()} | _OTHER_NAMES
    fields = {_letters(name): name for name in (*_FIELDS, *_PARTS) if name not in REQUIRED}
    near = types.get(word) or checks.get(word) or fields.get(written) or _nearest(word, types)
    if near is None:
        return None
    if near in _PARTS - {"rubrics"}:
        return f"is '{near}' of a test, which no cell can hold: write the tests as YAML or JSON"
    if near in (*_FIELDS, *column_types()):
        return f"is not read as '{near}': call the column so"
    return f"names the assertion '{near}', which no cell can hold: write it in 'assertions' as JSON"


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _nearest(written: str, names: Mapping[str, str]) -> str | None:
    """Return the name from which one edit leads to what is written: a letter, or two swapped."""
    from rapidfuzz.distance import OSA

    # `cost` and `host` are both words.
    near = (names[each] for each in names if OSA.distance(written, each) <= (len(written) > 4))
    return next(near, None)


def _with(part: Any, field: str, value: Any) -> Any:
    """Return a mapping with one more field; what is no mapping is a mistake that readers name."""
    return {**part, field: value} if isinstance(part, dict) else part


def _number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _assertion_value(kind: str, value: Any) -> Any:
    """Return a cell as an assertion's value: lists as JSON or, in a CSV, separated by `|`."""
    if not kind.endswith(("-any", "-all")):
        return value_text(value)
    return _list_cell(value, separator="|")


def _list_cell(value: Any, separator: str = ",") -> Any:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return parse_row(value.encode()).value
        except ValueError:
            return value
    return [part.strip() for part in value.split(separator) if part.strip()]

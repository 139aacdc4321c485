"""Rows of a CSV file, read strictly: every row has its line, and none that has text is skipped.

Python's reader rather than DuckDB's: that one guesses a dialect and drops the rows that do not fit
it (docs/decisions/0008).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TextIO

from evalcore.errors import LoadError, Problem
from evalcore.formats.text.documents import decode, raise_problem
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import counted

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
        self._nameless: set[int] = set()

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
        self.header = names

    def _uneven(self, cells: Sequence[str], problems: Problems) -> dict[str, str | None] | None:
        """Return the row if only nameless columns make it uneven; note it if not."""
        names = self.header
        named = {name: cell or None for name, cell in zip(names, cells, strict=False) if name}
        extra = [cell for cell, name in zip(cells, names, strict=False) if not name]
        extra.extend(cells[len(names) :])
        if len(cells) < len(names):
            columns = counted(len(names), "column")
            problems.add((), f"{counted(len(cells), 'cell')}, but the header names {columns}")
            return None
        if self._note_nameless(cells, problems):
            return None
        if any(extra):
            problems.add(
                (),
                f"{counted(len(cells), 'cell')}, but the header names "
                f"{counted(len(list(filter(None, names))), 'column')}; "
                "quote a cell that contains the separator",
            )
            return None
        return named

    def _note_nameless(self, cells: Sequence[str], problems: Problems) -> bool:
        """Note each column before the last one that has cells and no name, once.

        Programs write row numbers so. Return whether the row has a cell of such a column.
        """
        last = max(column for column, name in enumerate(self.header) if name)
        nameless = [
            column
            for column, (name, cell) in enumerate(zip(self.header[:last], cells, strict=False))
            if cell and not name
        ]
        for column in sorted(set(nameless) - self._nameless):
            where = f"column {column + 1}, which line {self.header_line} does not name"
            problems.add((), f"a cell in {where}; name the column, or leave it out")
        self._nameless.update(nameless)
        return bool(nameless)

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

"""Rows of a table in JSON: the objects of a list, or one in each line of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalcore.errors import LoadError, Problem
from evalcore.formats.parts.json_lines import byte_lines, line_value, open_reason
from evalcore.formats.parts.raw_test import NO_TEST
from evalcore.formats.text.documents import read_document
from evalcore.mistakes.locations import Loc, Locate
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import describe


class JsonRows:
    """The rows of a file; `columns` are the keys of those that were read, in their order."""

    def __init__(self, path: Path, name: str) -> None:
        self.columns: dict[str, None] = {}
        self._path, self._name = path, name
        self._loc: Loc = ()
        self._locate: Locate = lambda _: None

    def line(self) -> int | None:
        """Return the line at which the row begins that is being read."""
        return self._locate(self._loc)

    def read(self, problems: Problems) -> Iterator[dict[str, Any]]:
        """Yield the objects; note other values. Raises `LoadError` for a file of another form."""
        in_lines = self._path.suffix.lower() == ".jsonl"
        for row in self._lines(problems) if in_lines else self._listed():
            if isinstance(row, dict):
                self.columns |= dict.fromkeys(row)
                yield row
            else:
                problems.add((), f"expected a mapping, got {describe(row)}")

    def _lines(self, problems: Problems) -> Iterator[Any]:
        number = 0
        self._locate = lambda _: number
        try:
            with self._path.open("rb") as file:
                for number, line in enumerate(byte_lines(file), start=1):
                    value = line_value(line, number, problems)
                    if value is not NO_TEST:
                        yield value
        except OSError as error:
            raise LoadError((Problem(self._name, None, "", open_reason(error)),)) from error

    def _listed(self) -> Iterator[Any]:
        document = read_document(self._path, self._name)
        self._locate = document.locate
        rows, loc = listed_rows(document.value)
        if not isinstance(rows, list):
            line = document.locate(loc)
            raise LoadError((Problem(self._name, line, "", "expected a list of rows"),))
        for index, row in enumerate(rows):
            self._loc = (*loc, index)
            yield row


def listed_rows(value: Any) -> tuple[Any, Loc]:
    """Return the list of a document that holds nothing but tests, and where it stands."""
    for key in ("tests", "cases") if isinstance(value, dict) else ():
        if key in value:
            return value[key], (key,)
    return value, ()

"""What a search of a run's cases reads: their texts in lower case, in one file beside."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from evalcore.analytics.filled_tables import fill_table
from evalcore.analytics.named_queries import query_text
from evalcore.model.run import Plan
from evalcore.sql.connection import BoundedConnection, literal_path

_QUESTION_COLUMNS: Final = {"case_number": "BIGINT", "question": "VARCHAR"}
# Row groups of the usual size would keep 50 MB of a run's outputs in memory.
_ROW_GROUP: Final = 20_000


class Questions(Protocol):
    """The beginnings of the inputs of a plan's cases."""

    def of_cases(self, numbers: Collection[int]) -> Mapping[int, str | None]:
        """Return those of some cases by their number in the plan; None for one without input."""

    def all(self) -> Iterable[str | None]:
        """Yield those of all cases in the order of the plan."""


class SearchIndex:
    """Ids, questions and outputs of the items in the result files of a run.

    The file is written by the first who needs it: of 100 000 cases that takes a second. Several
    threads may use it; the connection of the run's tables is not needed.
    """

    def __init__(self, files: Sequence[str], plan: Plan, questions: Questions) -> None:
        self._files, self._plan, self._questions = list(files), plan, questions
        self._lock = threading.Lock()
        self._folder: TemporaryDirectory[str] | None = None
        self._is_closed = False

    @property
    def is_written(self) -> bool:
        """Whether a search can begin at once."""
        return self._folder is not None

    def write(self) -> None:
        """Write the file; nothing happens if it is there, or if the index was closed."""
        with self._lock:
            if self._folder is None and not self._is_closed:
                folder = TemporaryDirectory(prefix="evalcore-search-")
                try:
                    self._write(Path(folder.name) / "texts.parquet")
                except BaseException:  # an interrupt leaves no file behind, too
                    folder.cleanup()
                    raise
                self._folder = folder

    def path(self) -> str:
        """Return the file's path for DuckDB; it is written if it is not there."""
        self.write()
        if self._folder is None:
            raise ValueError("the index is closed")
        return literal_path(Path(self._folder.name) / "texts.parquet")

    def close(self) -> None:
        """Remove the file, after it is written if a thread does so now."""
        with self._lock:
            self._is_closed = True
            if self._folder is not None:
                self._folder.cleanup()

    def _write(self, path: Path) -> None:
        connection = BoundedConnection(self._plan.items)
        try:
            connection.execute("SET VARIABLE files = $1", [self._files])
            fill_table(connection, "questions", _QUESTION_COLUMNS, _numbered(self._questions.all()))
            texts = query_text("search_texts").format(
                iterations=self._plan.iterations,
                case_items=self._plan.variants * self._plan.iterations,
            )
            target = str(path).replace("'", "''")
            connection.execute(
                f"COPY ({texts}) TO '{target}' "
                f"(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {_ROW_GROUP})"
            )
        finally:
            connection.close()


def _numbered(questions: Iterable[str | None]) -> Iterable[Mapping[str, Any]]:
    for number, question in enumerate(questions):
        if question is not None:
            # A lone surrogate has no place in UTF-8.
            text = question.encode("utf-8", "replace").decode()
            yield {"case_number": number, "question": text}

"""The end of a large file of JSON lines, read by child processes while this one reads the rest.

A child reads a range of lines as the whole file is read, and returns the parts of its cases as the
spool has them. Where more has to be known of the file (a mistake, a warning, another target),
nothing of that is taken, and this process reads every line itself.
"""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from evalcore.model.suite import Suite
from evalcore.planning.spool import PART_CASES, CaseSpool, SpooledCases, part_inputs
from evalcore.problems import Problems

# Below, little is left to read when a child has started.
_LEAST_BYTES: Final = 16 << 20
_LINES: Final = 2 * PART_CASES
_LONGEST_LINE: Final = 16 << 20
_MOST_CHILDREN: Final = 3


class LineRange(NamedTuple):
    """Lines of a file: the byte at which they begin, how many are before them, how many at most."""

    start: int
    before: int
    size: int | None


ALL_LINES: Final = LineRange(0, 0, None)


class ReadRange(NamedTuple):
    """The cases of a range, their ids, the targets of its suite."""

    cases: SpooledCases
    ids: list[str]
    targets: frozenset[str]

    @classmethod
    def unpacked(cls, text: str) -> ReadRange:
        """Return what `packed` wrote."""
        read: ReadRange = pickle.loads(base64.b64decode(text))  # noqa: S301 - of this program
        return read

    def packed(self) -> str:
        """Return it as text."""
        return base64.b64encode(pickle.dumps(self)).decode()


class Loaded(Protocol):
    """What says that a child's code is imported: its engine."""

    def loaded(self) -> None:
        """Say it."""


READ_RANGE: Final = f"{__name__}:read_in_child"


async def read_in_child(
    load: tuple[Callable[..., Suite], tuple[object, ...]], engine: Loaded
) -> str | None:
    """Return a range as `packed`, loaded by a function; None if more is to be said of it."""
    engine.loaded()
    function, source = load
    suite = function(*source)
    cases, definition = suite.cases, suite.definition
    if not isinstance(cases, CaseSpool) or suite.warnings or definition.absent_fields:
        return None
    ids = [each for part in cases.parts() for each in part_inputs(part, key="id")]
    return ReadRange(cases.spooled(), ids, frozenset(definition.targets)).packed()


class Row(Protocol):
    """A row, and the collector of its mistakes."""

    @property
    def problems(self) -> Problems:
        """The collector of the row's mistakes."""


R = TypeVar("R", bound=Row)
Read = Callable[[LineRange], Future[ReadRange | None]]
"""Lets a child read a range; None if more is to be said of it."""
Readers = tuple[Read, Callable[[], None]]
"""Children that read, and what ends them."""


class RowRanges:
    """The ranges of a file's lines: this process begins at the first, children at the last."""

    def __init__(
        self, ranges: list[LineRange], children: int, start: Callable[[int], Readers]
    ) -> None:
        """Take the ranges of the whole file, for how many children, and what starts them."""
        self.rest: list[ReadRange] = []
        self._ranges, self._start = ranges, start
        self._children = min(children, _MOST_CHILDREN, len(ranges) - 1)
        # Those from `_taken` on are children's.
        self._next, self._taken = 0, len(ranges)
        self._read: dict[int, Future[ReadRange | None]] = {}
        self._lock = threading.Lock()

    def head(self, rows: Iterator[R], accepts: Callable[[list[ReadRange]], bool]) -> Iterator[R]:
        """Yield the rows before those that children have read, which are `rest` then; else all.

        `accepts` says whether what was read so far, and these ranges, is nothing but cases.
        """
        if self._children < 1:
            yield from rows
            return
        submit, end = self._start(self._children)
        try:
            for _ in range(self._children):
                self._submit_last(submit)
            for number, row in enumerate(rows):
                if number % _LINES == 0 and not self._begin_next():
                    read, problems = self._read_by_children(), row.problems
                    is_whole = problems.locate(()) == number + 1 and not problems.count
                    if is_whole and read and accepts(read):
                        self.rest = read
                        return
                    self._ranges = []
                yield row
        finally:
            self._next = self._taken  # children get no further range
            end()

    def _begin_next(self) -> bool:
        """Begin the next range here; return whether no child has it."""
        with self._lock:
            is_free = self._next < self._taken or not self._ranges
            self._next += is_free
            return is_free

    def _submit_last(self, submit: Read) -> None:
        """Let a child read the last range that nobody has begun, and then the one before it."""
        with self._lock:
            if self._next >= self._taken:
                return
            self._taken -= 1
            read = self._read[self._taken] = submit(self._ranges[self._taken])
        read.add_done_callback(lambda _: self._submit_last(submit))

    def _read_by_children(self) -> list[ReadRange]:
        """Wait for the ranges that children have, and return them in order; none if one lacks."""
        numbers = range(self._taken, len(self._ranges))
        ended = [self._read.pop(number) for number in numbers]
        read = [each.result() for each in ended if each.exception() is None]
        whole = [each for each in read if each is not None]
        return whole if len(whole) == len(numbers) else []


def line_ranges(path: Path) -> list[LineRange]:
    """Return the ranges of lines of a file that is worth it, else none."""
    if path.suffix.lower() != ".jsonl" or path.stat().st_size < _LEAST_BYTES:
        return []
    starts, position = [0], 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
            position += len(line)
            if number % _LINES == 0:
                starts.append(position)
    whole = [LineRange(start, number * _LINES, _LINES) for number, start in enumerate(starts)]
    return whole[:-1] if starts[-1] == position else whole

"""The lines of a large file of tests, read by several processes.

This process reads the first lines, forks of it the others, each as if the ones before it were
sound. What a fork has read counts only if it is plain: every line a case with a given output, no
mistake, no warning, nothing that concerns the suite. From the first fork on of which that is not
true, this process reads the lines itself, and says what there is to say.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final, NamedTuple

import orjson

from evalcore.checks.registry import AWAITED
from evalcore.formats.parts.case_spooling import Spooled
from evalcore.formats.parts.json_lines import LinePosition, jsonl_tests
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.formats.parts.unique_ids import UniqueIds
from evalcore.isolation.forking import can_fork
from evalcore.mistakes.problems import Problems
from evalcore.planning.spool import PART_CASES, CaseSpool, SpoolFacts

# Less is read in the time that a fork takes.
LEAST_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024
# What these compare or ask concerns the whole suite.
_OF_THE_SUITE: Final = AWAITED | {"field-accuracy", "human"}

Read = Callable[[Iterator[RawTest], CaseSpool], Spooled]
"""Reads rows into a spool, and returns what there was to note."""
Notes = Callable[[], tuple[list[str], ...]]


class _FileVersion(NamedTuple):
    """What changes with the content of a file."""

    device: int
    inode: int
    size: int
    mtime_ns: int


class _Fork(NamedTuple):
    """A process that reads lines: where they begin and end, and where it leaves what it read."""

    pid: int
    begin: LinePosition
    end: LinePosition
    blocks: IO[bytes]
    facts: IO[bytes]

    def close(self) -> None:
        """Give back the room of what it has read."""
        self.blocks.close()
        self.facts.close()


@dataclass(frozen=True, slots=True)
class LineReader:
    """How the lines of a file become cases.

    `ids` are those of the cases so far. `notes` returns what was noted of the suite: it must be the
    same before and after lines that a fork may read.
    """

    path: Path
    name: str
    read: Read
    ids: UniqueIds
    notes: Notes


class ForkedLines:
    """Lines of a file that forks read; to be closed.

    `parts` are where the lines of each fork begin, and where the last one's end, in this `version`
    of the file.
    """

    def __init__(
        self,
        reader: LineReader,
        spool: CaseSpool,
        parts: list[LinePosition],
        version: _FileVersion,
    ) -> None:
        self._reader, self._spool, self._version = reader, spool, version
        self._begin = parts[0]
        self._forks: list[_Fork] = []
        for begin, end in pairwise(parts):
            try:
                self._forks.append(self._fork(begin, end))
            except OSError:  # no process, memory or file for it: its lines are read here
                break

    @property
    def lines(self) -> int:
        """How many lines are not read by a fork."""
        return self._begin.lines

    def close(self) -> None:
        """End the forks whose lines were not taken."""
        for fork in self._forks:
            os.kill(fork.pid, signal.SIGKILL)
            os.waitpid(fork.pid, 0)
            fork.close()
        self._forks.clear()

    def _fork(self, begin: LinePosition, end: LinePosition) -> _Fork:
        blocks, facts = TemporaryFile(), TemporaryFile()  # noqa: SIM115 - as long as the fork
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            code = 1
            try:
                code = 0 if self._read(begin, end, blocks, facts, parent) else 1
            finally:
                os._exit(code)
        return _Fork(pid, begin, end, blocks, facts)

    def _read(
        self,
        begin: LinePosition,
        end: LinePosition,
        blocks: IO[bytes],
        facts: IO[bytes],
        parent: int,
    ) -> bool:
        """Read lines in a fork of `parent`; return whether all of them are plain."""
        reader, before = self._reader, self._reader.notes()
        ids_before = len(reader.ids.names)
        spool = CaseSpool(blocks)
        count = end.lines - begin.lines
        rows = jsonl_tests(reader.path, reader.name, start=begin, end=end.lines)
        spooled = reader.read(_plain(rows, parent), spool)
        read = spool.facts()
        is_plain = (
            read.cases == count
            and not any(problems.count for problems in spooled.collectors)
            and not spooled.absent_fields
            and not spooled.unjudged
            and not read.has_workspaces
            and _OF_THE_SUITE.isdisjoint(read.checks)
            and reader.notes() == before
        )
        if is_plain:
            ids = list(islice(reader.ids.names, ids_before, None))
            document = {**read._asdict(), "ids": ids}
            facts.write(orjson.dumps(document, default=sorted))
            facts.flush()
        return is_plain

    def join(self, problems: Problems) -> LinePosition:
        """Take what the forks have read, up to the first that met something else; end the others.

        Nothing of a file that has changed since it was cut: its lines stand elsewhere now.
        """
        position = self._begin
        while self._forks and self._spool.is_aligned and len(self._spool) == position.lines:
            fork = self._forks[0]
            _, status = os.waitpid(fork.pid, 0)
            self._forks.pop(0)
            with closing(fork):
                if status or self._has_changed() or not self._take(fork, position, problems):
                    break
            position = fork.end
        self.close()
        return position

    def _has_changed(self) -> bool:
        try:
            return _version(self._reader.path) != self._version
        except OSError:
            return True

    def _take(self, fork: _Fork, position: LinePosition, problems: Problems) -> bool:
        """Take what a fork has read; return False if an id of it stands before `position`, too."""
        fork.facts.seek(0)
        document: dict[str, Any] = orjson.loads(fork.facts.read())
        ids = document.pop("ids")
        if not self._reader.ids.note_lines(ids, position.lines + 1, problems):
            return False
        self._spool.take_over(fork.blocks, SpoolFacts(**document))
        return True


class _NotPlainError(Exception):
    """A line needs what only the process has that reads the suite, or that process has ended."""


def _plain(rows: Iterator[RawTest], parent: int) -> Iterator[RawTest]:
    for row in rows:
        if os.getppid() != parent:
            raise _NotPlainError
        value = row.value
        if value is NO_TEST or type(value) is not dict or not value.get("fixtures"):
            raise _NotPlainError
        yield row


@contextmanager
def forked_lines(
    reader: LineReader, spool: CaseSpool, processes: int
) -> Iterator[ForkedLines | None]:
    """Give the lines of a file that forks read from now on; leave no process behind.

    None for a file of other than JSON lines or of less than `LEAST_BYTES`, and where this process
    cannot be forked.
    """
    try:
        version = _version(reader.path)
        parts = _parts(reader.path, processes)
    except OSError:  # the reading of the file says why
        yield None
        return
    if len(parts) < 2 or not can_fork():
        yield None
        return
    lines = ForkedLines(reader, spool, parts, version)
    try:
        yield lines
    finally:
        lines.close()


def _version(path: Path) -> _FileVersion:
    status = path.stat()
    return _FileVersion(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _parts(path: Path, count: int) -> list[LinePosition]:
    """Return where the lines of each fork begin, and where the last one's end.

    A part begins where a block of the plan does, if each line is a case. None for a file that this
    process reads alone.
    """
    if count == 1 or path.suffix.lower() != ".jsonl":
        return []
    size = path.stat().st_size if path.is_file() else 0
    if size < LEAST_BYTES:
        return []
    targets = [size * number // count for number in range(1, count)]
    parts: list[LinePosition] = []
    lines = offset = 0
    is_ended = True
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            is_ended = chunk.endswith(b"\n")
            if targets and offset + len(chunk) > targets[0]:
                targets.pop(0)
                file.seek(offset)
                while piece := file.readline(_CHUNK_BYTES):
                    offset += len(piece)
                    is_ended = piece.endswith(b"\n")
                    lines += is_ended
                    if is_ended and lines % PART_CASES == 0:
                        parts.append(LinePosition(lines, offset))
                        break
                continue
            offset += len(chunk)
            lines += chunk.count(b"\n")
    end = LinePosition(lines + (not is_ended), offset)
    return [*dict.fromkeys(part for part in parts if part != end), end]

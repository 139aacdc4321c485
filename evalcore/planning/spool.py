"""The validated cases of a suite, compressed, in memory up to a bound and then on disk.

A spool is what makes `Suite.cases` re-iterable without reading the suite file again, and its blocks
are the plan parts that go into the store: a million cases are never a million Python objects.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import starmap
from tempfile import SpooledTemporaryFile
from typing import Any, Final, NamedTuple

import orjson
import zstandard

from evalcore.errors import StoreError, UsageError
from evalcore.model.assertion import Assertion
from evalcore.model.suite import Case, CaseSource
from evalcore.planning.codec import CaseEncoder, decode_case
from evalcore.redaction.sealing import missing_variables, seal_block, unseal

PART_CASES = 2_500
MEMORY_BYTES = 64 * 1024 * 1024
LARGEST_FRAME_BYTES: Final = 512 * 1024 * 1024
"""What a frame may hold when it is decompressed; compressed, a frame of any size is small."""
# So many cases in random order are in memory at once; for each portion the source is read again.
_PORTION = 100_000


class SpooledCases(NamedTuple):
    """Cases of a spool: its parts, and what it says of them."""

    size: int
    parts: list[bytes]
    checks: frozenset[str]
    code_names: frozenset[str]
    has_workspaces: bool


class CaseSpool:
    """Cases in their order, `PART_CASES` to a block; append first, then iterate again and again."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115  (lives as long as the spool)
        # Where each block begins, and its size.
        self._blocks: list[tuple[int, int]] = []
        self._encoder = CaseEncoder()
        self._end = 0
        self._count = 0

    def append(self, case: Case) -> None:
        """Add a case at the end; raise `TypeError` for a value that JSON cannot hold."""
        self._encoder.add(case)
        self._count += 1
        if len(self._encoder) == PART_CASES:
            self._flush()

    def spooled(self) -> SpooledCases:
        """Return the cases for another spool, in another process."""
        told = self.checks(), self.code_names(), self.has_workspaces()
        return SpooledCases(self._count, list(self.parts()), *told)

    def extend(self, cases: SpooledCases) -> None:
        """Add cases of another spool at the end, where a part begins."""
        for part in cases.parts:
            self._write(part)
        self._count += cases.size
        self._encoder.checks |= cases.checks
        self._encoder.code_names |= cases.code_names
        self._encoder.has_workspaces |= cases.has_workspaces

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Case]:
        for part in self.parts():
            yield from decode_part(part, opened=True)

    def parts(self) -> Iterator[bytes]:
        """Yield the compressed blocks in order, each a plan part."""
        self._flush()
        for offset, size in self._blocks:
            self._file.seek(offset)
            yield self._file.read(size)

    def checks(self) -> frozenset[str]:
        """Return the names of the checks that the cases' assertions are evaluated by."""
        return frozenset(self._encoder.checks)

    def has_workspaces(self) -> bool:
        """Whether a case works in a folder of its own or of the suite's."""
        return self._encoder.has_workspaces

    def code_names(self) -> frozenset[str]:
        """Return the code that the cases name."""
        return frozenset(self._encoder.code_names)

    def _write(self, data: bytes) -> None:
        """Append a block; raise `StoreError` if it cannot be written."""
        try:
            self._file.seek(self._end)
            self._file.write(data)
            # What stays in a buffer fails as the spool is closed, where nothing tells it.
            self._file.flush()
        except OSError as error:
            with suppress(OSError):
                self._file.close()
            # None where no folder can be written to: the error names those that were tried.
            where = "" if tempfile.tempdir is None else f" below {tempfile.tempdir}"
            reason = f"cannot keep the cases{where}: {error.strerror or error}"
            raise StoreError(f"{reason} (TMPDIR chooses another folder)") from error
        self._blocks.append((self._end, len(data)))
        self._end += len(data)

    def _flush(self) -> None:
        """Write the block that is not whole, if there is one."""
        if not len(self._encoder):
            return
        count = len(self._encoder)
        block = seal_block(self._encoder.block())
        if len(block) > LARGEST_FRAME_BYTES:
            limit = LARGEST_FRAME_BYTES // 2**20
            raise UsageError(
                f"{count} cases in a row come to more than {limit} MiB; put what is "
                "large in them into files"
            )
        self._write(compress_frame(block))


def spool_cases(cases: Iterable[Case]) -> CaseSpool:
    """Return a spool of the cases."""
    spool = CaseSpool()
    for case in cases:
        spool.append(case)
    return spool


class PlanPartError(ValueError):
    """A plan part is not what was written; the message follows the part's name."""


class PlanPart:
    """One part of a plan; its cases are decoded when they are asked for.

    `opened` with the secrets that they are executed with. Raises `PlanPartError` if the part is
    torn or foreign, as the methods do, and `UsageError` for a variable that is not set here.
    """

    def __init__(self, part: bytes, *, opened: bool = False) -> None:
        block = _decompressed(part)
        if opened and (missing := missing_variables(block)):
            names = ", ".join(missing)
            raise UsageError(
                f"the plan refers to {names}, which is not set here; set it in the environment or "
                "in the suite's .env file"
            )
        with _undecodable():
            # JSON has no line break but those between the lines.
            text = unseal(block) if opened else block
            head, *self._lines = text.removesuffix(b"\n").split(b"\n")
            tables = orjson.loads(head)
            self._table = list(starmap(Assertion, tables["assertions"]))
            self._workspaces = tables.get("workspaces", ())

    def __len__(self) -> int:
        return len(self._lines)

    def cases(self, positions: slice = slice(None)) -> list[Case]:
        """Return the cases at these positions, by default all; equal assertions are one object."""
        with _undecodable():
            lines = map(orjson.loads, self._lines[positions])
            return [decode_case(line, self._table, self._workspaces) for line in lines]


@contextmanager
def _undecodable() -> Iterator[None]:
    """Raise `PlanPartError` for what a block that was not written here makes of decoding it."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PlanPartError(f"holds no cases: {type(error).__name__}: {error}") from error


def decode_part(part: bytes, *, opened: bool = False) -> list[Case]:
    """Return the cases of one plan part; raises as `PlanPart` does."""
    return PlanPart(part, opened=opened).cases()


def part_inputs(
    part: bytes, positions: Collection[int] | None = None, *, key: str = "input"
) -> list[Any]:
    """Return the inputs of a plan part's cases (of those at `positions`, from 0), in their order.

    Or else their ids.

    Raises `PlanPartError` if the part is torn or foreign.
    """
    with _undecodable():
        lines = _decompressed(part).splitlines()[1:]
        chosen = range(len(lines)) if positions is None else positions
        return [orjson.loads(line)[key] for n, line in enumerate(lines) if n in chosen]


def count_cases(part: bytes) -> int:
    """Return how many cases a plan part holds, without decoding them; raise `PlanPartError`."""
    return _decompressed(part).count(b"\n") - 1


class ZstdFrameError(ValueError):
    """A frame is damaged or holds too much; the message follows the name of what holds it."""


def compress_frame(data: bytes, *, level: int = 1, checksum: bool = True) -> bytes:
    """Return `data` as one frame."""
    return zstandard.ZstdCompressor(level=level, write_checksum=checksum).compress(data)


def decompress_frame(frame: bytes) -> bytes:
    """Return what a frame holds; raise `ZstdFrameError` before it takes more than the bound."""
    try:
        size = zstandard.frame_content_size(frame)
        if size > LARGEST_FRAME_BYTES:
            raise ZstdFrameError(f"says that it holds {size} bytes")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=LARGEST_FRAME_BYTES)
    except zstandard.ZstdError as error:
        raise ZstdFrameError(f"cannot be read: {error}") from error


def _decompressed(part: bytes) -> bytes:
    try:
        return decompress_frame(part)
    except ZstdFrameError as error:
        raise PlanPartError(str(error)) from error


def in_random_order(cases: CaseSource, seed: int) -> CaseSpool:
    """Return the cases in the order of the seed: the same seed gives the same order."""
    numbers = list(range(len(cases)))
    random.Random(seed).shuffle(numbers)  # noqa: S311  (no secret)
    spool = CaseSpool()
    for start in range(0, len(numbers), _PORTION):
        for case in _portion(cases, numbers[start : start + _PORTION]):
            spool.append(case)
    return spool


def _portion(cases: CaseSource, numbers: list[int]) -> Iterator[Case]:
    """Yield the cases with these numbers, in the order of the numbers."""
    positions = {number: position for position, number in enumerate(numbers)}
    chosen: list[Case | None] = [None] * len(numbers)
    for number, case in enumerate(cases):
        if (position := positions.get(number)) is not None:
            chosen[position] = case
    yield from (case for case in chosen if case is not None)

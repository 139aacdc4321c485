"""The cases of a version: JSON lines in content-addressed objects, streamed one part at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from evalcore.datasets.versions import CasePart, DatasetVersion
from evalcore.errors import StoreError
from evalcore.planning.spool import ZstdFrameError, compress_frame, decompress_frame
from evalcore.storage.layout import DatasetKeys
from evalcore.storage.store import ObjectStore

PART_CASES: Final = 5_000
_PART_BYTES: Final = 8 * 1024 * 1024


def encode_case(case: Mapping[str, Any]) -> bytes:
    """Return a case's line: equal cases have equal lines, in whichever order their fields came."""
    # The sum is a copy of its exact size: what orjson returns keeps a buffer of 4 KiB.
    return orjson.dumps(dict(case), option=orjson.OPT_SORT_KEYS) + b"\n"


def content_id(value: Any) -> str:
    """Return the SHA-256 of a JSON value in hex."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def part_lines(store: ObjectStore, part: CasePart) -> list[bytes]:
    """Return the lines of one part; raise `StoreError` if it is not what was written."""
    try:
        data = decompress_frame(store.get(part.key).data)
    except ZstdFrameError as error:
        raise StoreError(f"{part.key} {error}") from error
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise StoreError(f"{part.key} is damaged: its content is not what its version names")
    return data.splitlines(keepends=True)


def version_lines(store: ObjectStore, version: DatasetVersion) -> Iterator[bytes]:
    """Yield the lines of all cases in order; one part is in memory at a time."""
    for part in version.parts:
        yield from part_lines(store, part)


def version_cases(
    store: ObjectStore, version: DatasetVersion, *, offset: int = 0, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the cases of a version from `offset` on; parts before it are not read."""
    left = limit if limit is not None else version.cases
    for part in version.parts:
        if offset >= part.cases:
            offset -= part.cases
            continue
        if left <= 0:
            return
        for line in part_lines(store, part)[offset : offset + left]:
            yield orjson.loads(line)
            left -= 1
        offset = 0


class PartWriter:
    """Writes lines as parts of the version with this number."""

    def __init__(self, store: ObjectStore, keys: DatasetKeys, version: int) -> None:
        self._store, self._keys, self._version = store, keys, version
        self._lines: list[bytes] = []
        self._size = 0
        self._parts: list[CasePart] = []
        self._whole = hashlib.sha256()
        self.cases = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines in order; a full part is written at once."""
        for line in lines:
            self._lines.append(line)
            self._size += len(line)
            if len(self._lines) >= PART_CASES or self._size >= _PART_BYTES:
                self._write()

    def keep(self, part: CasePart, lines: Iterable[bytes]) -> None:
        """Take over a part of an earlier version as it is; `lines` are its lines."""
        self._write()
        for line in lines:
            self._whole.update(line)
        self._parts.append(part)
        self.cases += part.cases

    def finish(self) -> tuple[tuple[CasePart, ...], str]:
        """Write what is left; return the parts and the SHA-256 of all lines."""
        self._write()
        return tuple(self._parts), self._whole.hexdigest()

    def _write(self) -> None:
        if not self._lines:
            return
        data = b"".join(self._lines)
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._keys.part(self._version, sha256)
        # One that exists has the same content: another process tries the same number.
        self._store.put_if_absent(key, compress_frame(data, level=3))
        self._parts.append(CasePart(key, len(self._lines), sha256))
        self._whole.update(data)
        self.cases += len(self._lines)
        self._lines, self._size = [], 0

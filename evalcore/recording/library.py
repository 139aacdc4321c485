"""The recordings in a store: read, listed, written once; as files in a folder, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.errors import LoadError, ObjectNotFoundError, Problem, RunConflictError, UsageError
from evalcore.recording.content import (
    Recording,
    RecordingError,
    check_key,
    decode,
    parse,
    readable,
    stored,
)
from evalcore.storage.layout import RECORDINGS_PREFIX, recording_key
from evalcore.storage.store import ObjectStore, swap

_READERS: Final = 16
_READ_AT_ONCE: Final = 256
_KEY: Final = re.compile(RECORDINGS_PREFIX + r"[0-9a-f]{2}/([0-9a-f]{64})")
_SHORTEST_BEGINNING: Final = 4


class Listed(NamedTuple):
    """One entry of a listing: its bytes, and what they hold or why they cannot be read."""

    digest: str
    data: bytes
    recording: Recording | None
    problem: str = ""


class Library:
    """The recordings of one store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def data(self, digest: str) -> bytes | None:
        """Return the bytes of a recording, None if there is none."""
        try:
            return self.store.get(recording_key(digest)).data
        except ObjectNotFoundError:
            return None

    def read(self, digest: str) -> Recording | None:
        """Return a recording, None if there is none; raise `RecordingError` if it is damaged."""
        data = self.data(digest)
        return None if data is None else _decoded(digest, data)

    def settle(self, digest: str, data: bytes, gives_way: Callable[[Recording], bool]) -> Recording:
        """Write a recording unless another stands that does not give way; return what stands then.

        Raises `RecordingError` if the one that stands is damaged, or changed all the time.
        """
        standing: Recording

        def change(stored: bytes | None) -> bytes | None:
            nonlocal standing
            if stored is not None:
                standing = _decoded(digest, stored)
                if not gives_way(standing):
                    return None
            standing = decode(data)
            return data

        label = f"recording {digest}"
        try:
            swap(self.store, recording_key(digest), change, seen=None, label=label)
        except RunConflictError as error:
            raise RecordingError(str(error)) from error
        return standing

    def delete(self, digest: str) -> None:
        """Remove a recording."""
        self.store.delete(recording_key(digest))

    def digests(self, beginning: str = "") -> Iterator[str]:
        """Yield the digests of all recordings (that begin so), in their order."""
        prefix = f"{RECORDINGS_PREFIX}{beginning[:2]}"
        if len(beginning) > 2:
            prefix = f"{prefix}/{beginning}"
        for info in self.store.list(prefix):
            match = _KEY.fullmatch(info.key)
            if match is not None:
                yield match[1]

    def listed(self, most: int | None = None) -> Iterator[Listed]:
        """Yield the recordings in the order of their digests, `most` of them; damaged ones too."""
        digests = islice(self.digests(), most)
        with ThreadPoolExecutor(_READERS) as readers:
            while some := list(islice(digests, _READ_AT_ONCE)):
                for listed in readers.map(self._listed, some):
                    if listed is not None:
                        yield listed

    def find(self, beginning: str) -> str:
        """Return the one digest that begins so; raise `UsageError` if there is none, or several."""
        if not re.fullmatch(r"[0-9a-f]{4,64}", beginning):
            raise UsageError(
                f"{beginning!r} is no key of a recording: 64 hex digits, or at least "
                f"{_SHORTEST_BEGINNING} that it begins with"
            )
        digests = list(islice(self.digests(beginning), 2))
        if len(digests) == 1:
            return digests[0]
        some = "several recordings begin" if digests else "no recording begins"
        raise UsageError(f"{some} with '{beginning}'; `evalcore recordings list` shows them")

    def _listed(self, digest: str) -> Listed | None:
        data = self.data(digest)
        if data is None:
            return None  # deleted meanwhile
        try:
            return Listed(digest, data, decode(data))
        except RecordingError as error:
            return Listed(digest, data, None, str(error))


def _decoded(digest: str, data: bytes) -> Recording:
    """Return the recording; raise `RecordingError` that says what removes a damaged one."""
    try:
        recording = decode(data)
        if recording.digest != digest:
            raise RecordingError(f"it holds the recording {recording.digest}")
    except RecordingError as error:
        raise RecordingError(
            f"recording {digest} cannot be read: {error}; "
            f"`evalcore recordings delete {digest}` removes it"
        ) from None
    return recording


SUFFIX: Final = ".json"
_MOST_PROBLEMS: Final = 100


class Imported(NamedTuple):
    """What became of the files: new in the store, there already, or other than what is there."""

    added: int
    same: int
    different: tuple[str, ...]


class Exported(NamedTuple):
    """How many files a set has, and the digests of damaged recordings that it lacks."""

    files: int
    damaged: tuple[str, ...]


def export_folder(library: Library, folder: Path, *, run_id: str | None = None) -> Exported:
    """Write a file `<key>.json` for each recording (that the run made).

    The same recordings give the same names and bytes. Other files in the folder are left alone.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: no folder for recordings: {error.strerror}") from None
    count, damaged = 0, []
    for listed in _chosen(library, run_id):
        if listed.recording is None:
            damaged.append(listed.digest)
            continue
        path = folder / f"{listed.digest}{SUFFIX}"
        try:
            path.write_bytes(readable(listed.data))
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
        count += 1
    return Exported(count, tuple(damaged))


def import_folder(library: Library, folder: Path) -> Imported:
    """Put the recordings of a folder (and those below it) into the store.

    All are read first: if one is wrong, `LoadError` tells every mistake and nothing is imported.
    Where the store has another answer, that stays.
    """
    files = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not files:
        raise UsageError(f"{folder}: no recordings there: a folder of `<key>{SUFFIX}` files is one")
    added, same, different = 0, 0, []
    for digest, text in _read(files).items():
        if library.store.put_if_absent(recording_key(digest), stored(text)) is not None:
            added += 1
        elif _is_same(library, digest, text):
            same += 1
        else:
            different.append(digest)
    return Imported(added, same, tuple(different))


def _chosen(library: Library, run_id: str | None) -> Iterator[Listed]:
    for listed in library.listed():
        recorded_by = listed.recording and listed.recording.origin.run
        if run_id in (None, recorded_by):
            yield listed


def _read(files: list[Path]) -> dict[str, bytes]:
    """Return the texts of the files by digest; raise `LoadError` with the mistakes of all."""
    problems: list[Problem] = []
    texts: dict[str, tuple[bytes, Path]] = {}
    for path in files:
        try:
            text = path.read_bytes()
            recording = parse(text)
            check_key(recording)
        except OSError as error:
            problems.append(Problem(str(path), None, "", f"cannot be read: {error.strerror}"))
        except RecordingError as error:
            problems.append(Problem(str(path), None, "", str(error)))
        else:
            _, first = texts.setdefault(recording.digest, (text, path))
            if first != path:
                message = f"holds the recording {recording.digest}, as {first} does"
                problems.append(Problem(str(path), None, "key", message))
    if problems:
        raise LoadError(tuple(problems[:_MOST_PROBLEMS]))
    return {digest: text for digest, (text, _) in texts.items()}


def _is_same(library: Library, digest: str, text: bytes) -> bool:
    there = library.data(digest)
    try:
        return there is not None and readable(there) == readable(stored(text))
    except RecordingError:
        return False

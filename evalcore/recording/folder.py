"""Recordings as readable files in a folder that can be committed, and back into a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from evalcore.errors import LoadError, Problem, UsageError
from evalcore.recording.content import (
    Recording,
    RecordingError,
    check_key,
    parse,
    readable,
    stored,
)
from evalcore.recording.library import Library, Listed
from evalcore.storage.layout import RunKeys

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


def export_folder(library: Library, folder: Path, *, run: RunKeys | None = None) -> Exported:
    """Write a file `<key>.json` for each recording (that the run used or made).

    The same recordings give the same names and bytes. Other files in the folder are left alone.
    """
    _make(folder)
    count, damaged = 0, []
    for listed in _chosen(library, run):
        if listed.recording is None:
            damaged.append(listed.digest)
            continue
        _write(folder / f"{listed.digest}{SUFFIX}", readable(listed.data))
        count += 1
    return Exported(count, tuple(damaged))


def import_folder(library: Library, folder: Path, *, replace: bool = False) -> Imported:
    """Put the recordings of a folder (and those below it) into the store.

    All are read first: if one is wrong, `LoadError` tells every mistake and nothing is imported.
    Where the store has another answer, that stays unless `replace` is set.
    """
    files = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not files:
        raise UsageError(f"{folder}: no recordings there: a folder of `<key>{SUFFIX}` files is one")
    _check(files)
    added, same, different = 0, 0, []
    for path in files:
        text = path.read_bytes()
        digest = parse(text).digest
        data = stored(text)
        if library.add(digest, data):
            added += 1
        elif _is_same(library, digest, text):
            same += 1
        else:
            different.append(digest)
            if replace:
                library.overwrite(digest, data)
    return Imported(added, same, tuple(different))


def _chosen(library: Library, run: RunKeys | None) -> Iterator[Listed]:
    if run is None:
        yield from library.listed()
        return
    used = library.used_by(run)
    for listed in library.listed():
        is_recorded = listed.recording is not None and listed.recording.origin.run == run.run_id
        if is_recorded or listed.digest in used:
            yield listed


def _check(files: list[Path]) -> None:
    """Raise `LoadError` with the mistakes of all files."""
    problems: list[Problem] = []
    files_by_digest: dict[str, Path] = {}
    for path in files:
        try:
            recording = _read(path)
        except RecordingError as error:
            problems.append(Problem(str(path), None, "", str(error)))
            continue
        first = files_by_digest.setdefault(recording.digest, path)
        if first != path:
            message = f"holds the recording {recording.digest}, as {first} does"
            problems.append(Problem(str(path), None, "key", message))
    if problems:
        raise LoadError(tuple(problems[:_MOST_PROBLEMS]))


def _read(path: Path) -> Recording:
    try:
        recording = parse(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"cannot be read: {error.strerror}") from None
    check_key(recording)
    return recording


def _is_same(library: Library, digest: str, text: bytes) -> bool:
    try:
        stored_recording = library.read(digest)
    except RecordingError:
        return False
    return stored_recording is not None and readable(stored_recording.data) == readable(
        stored(text)
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: no folder for recordings: {error.strerror}") from None


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None

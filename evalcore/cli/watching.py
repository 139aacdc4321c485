"""`evalcore run --watch`: run again when a file changes that the run was made from."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import orjson

from evalcore.cli.interrupts import INTERRUPTED
from evalcore.cli.opened_files import Stamp, stamp_of
from evalcore.cli.showing import one_line
from evalcore.errors import ExitCode, UsageError
from evalcore.wording import counted

_ROUND: Final = (sys.executable, "-P", "-c", "from evalcore.cli.watched_round import main; main()")
# An editor writes a file in several steps; one that renames leaves a moment without it.
_DEBOUNCE_MS = 300
_STEP_MS = 50
# Where the system tells of no change (a network's folder), the files are looked at so often.
_LOOK_MS = 1_000
_LISTED = 3


def watch_command(flags: Mapping[str, Any], arguments: Sequence[str]) -> int:
    """Run `evalcore run` with these arguments at once and after each change, until interrupted.

    `flags` are what the arguments say. Returns 130. Raises `UsageError` for what cannot be watched.
    """
    if flags["resume"] is not None:
        raise UsageError("--watch runs suite files; it takes no --resume")
    if not flags["suites"]:
        raise UsageError("name at least one suite file: evalcore run SUITE… --watch")
    with tempfile.TemporaryDirectory(prefix="evalcore-watch-") as folder, _terminating():
        notes = Path(folder) / "notes.json"
        notes.write_bytes(orjson.dumps({"runs": {}}))
        try:
            _watch(notes, arguments)
        except KeyboardInterrupt:
            return INTERRUPTED


def _watch(notes: Path, arguments: Sequence[str]) -> NoReturn:
    files = WatchedFiles()
    code, values = _round(notes, arguments)
    files.update(values, keep=code == ExitCode.USAGE)
    _print_line(f"watching {counted(len(files.digests), 'file')}; Ctrl-C ends")
    while True:
        changed = files.wait()
        code, values = _round(notes, arguments)
        files.update(values, keep=code == ExitCode.USAGE)
        what = "; ".join(values.get("lines", ())) or f"exit code {code}, waits for a change"
        _print_line(f"{_listed(changed)} changed → {what}")
        if files.postponed:
            _print_line(
                f"{_listed(files.postponed)} changed during the run again; the next save counts"
            )


def _print_line(text: str) -> None:
    click.echo(one_line(f"[{time.strftime('%H:%M:%S')}] {text}"), err=True)


def _listed(paths: Sequence[str]) -> str:
    names = [os.path.relpath(path) for path in paths[:_LISTED]]
    more = len(paths) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


@contextmanager
def _terminating() -> Iterator[None]:
    """Let SIGTERM end the watch as an interrupt does."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _round(notes: Path, arguments: Sequence[str]) -> tuple[int, dict[str, Any]]:
    """Run once; return the exit code and the notes. An interrupt stops the run, then the watch."""
    # Not in the terminal's group: it is interrupted by this process, once.
    with subprocess.Popen(
        [*_ROUND, str(notes), *arguments], stdin=subprocess.DEVNULL, process_group=0
    ) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            try:
                process.wait()
            except KeyboardInterrupt:
                process.kill()
            raise
    values: dict[str, Any] = orjson.loads(notes.read_bytes())
    return code, values


@dataclass(slots=True)
class WatchedFiles:
    """The files of a run with their contents, and the folders that it listed.

    Files that changed during a round start the next one at once, and not a third one: the run may
    write them itself. These are `postponed` until they change between two rounds.
    """

    digests: dict[str, str | None] = field(default_factory=dict)
    stamps: dict[str, Stamp] = field(default_factory=dict)
    listings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    postponed: list[str] = field(default_factory=list)
    _pending: list[str] = field(default_factory=list)
    _changed_during: set[str] = field(default_factory=set)

    def update(self, notes: Mapping[str, Any], *, keep: bool) -> None:
        """Take the files of a round; with `keep`, a load that failed, also those before it."""
        opened: dict[str, Any] = notes.get("files", {})
        earlier = set(self.digests) if keep else set()
        self.listings = {path: _listing(path) for path in notes.get("folders", ())}
        during: set[str] = set()
        self.digests.clear()
        for path in {*opened, *earlier}:
            stamp = self.stamps[path] = stamp_of(path)
            if path in opened and stamp != _stamp(opened[path]):
                during.add(path)
            self.digests[path] = _digest(path)
        self.postponed = sorted(during & self._changed_during)
        self._pending = sorted(during - self._changed_during)
        self._changed_during = during

    def wait(self) -> list[str]:
        """Wait for a change and return the paths, sorted. Raises `KeyboardInterrupt`."""
        from watchfiles import watch as watch_folders

        if self._pending:
            return self._pending
        folders = {str(Path(path).parent) for path in self.digests} | set(self.listings)
        existing = sorted(folder for folder in folders if Path(folder).is_dir())
        events = watch_folders(
            *existing,
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_STEP_MS,
            rust_timeout=_LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        for _ in events:
            if changed := self.changed():
                return changed
        raise KeyboardInterrupt

    def changed(self) -> list[str]:
        """Return the files whose contents differ, and the folders with other files in them."""
        changed: list[str] = []
        for path, digest in self.digests.items():
            stamp = stamp_of(path)
            if stamp == self.stamps[path]:
                continue
            if _digest(path) != digest:
                changed.append(path)
            else:
                self.stamps[path] = stamp
        changed.extend(path for path, names in self.listings.items() if _listing(path) != names)
        return sorted(changed)


def _stamp(noted: list[int] | None) -> Stamp:
    """Return a stamp as the notes of a round have it."""
    return None if noted is None else (noted[0], noted[1], noted[2])


def _digest(path: str) -> str | None:
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _listing(folder: str) -> tuple[str, ...]:
    """Return the names in a folder; hidden ones and Python's own do not count."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed
    except OSError:
        return ()
    return tuple(sorted(name for name in names if not name.startswith((".", "__pycache__"))))

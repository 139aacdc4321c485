"""`evalcore run --watch`: run again when a file changes that the run was made from.

Each round is a process of its own (`python -c … NOTES run SUITE …`): code is imported as it is now.
It notes which files the run was made from and what differs from the run before.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import source_from_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
import orjson

from evalcore.cli.options import INTERRUPTED
from evalcore.cli.output import say
from evalcore.errors import EvalError, ExitCode, UsageError
from evalcore.model.mode import HISTORY
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.pipeline.finish import RunView


Stamp = tuple[int, int, int] | None
"""Time in ns, size and inode of a file; None if there is none."""
_ENGINE: Final = Path(__file__).resolve().parents[1]
_SKIPPED: Final = frozenset({"__pycache__", "dist-packages", "node_modules", "site-packages"})
_WRITES: Final = os.O_WRONLY | os.O_RDWR


def stamp_of(path: str | Path) -> Stamp:
    """Return what changes when a file is written."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class OpenedFiles:
    """The files that this process reads and the folders that it lists, below the bounds.

    The store's own do not count, nor what is installed or hidden.
    """

    def __init__(self, bounds: Sequence[Path], store: Path | None) -> None:
        self._bounds = [bound.resolve() for bound in bounds]
        self._store = None if store is None else store.resolve()
        self._counted: dict[str, str | None] = {}
        self.files: dict[str, Stamp] = {}
        self.folders: set[str] = set()

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of `sys.addaudithook`."""
        if event == "open":
            path, _, flags = arguments
            if not (isinstance(flags, int) and flags & _WRITES):
                self._note_file(path)
        elif event == "os.scandir" and (folder := self._location(arguments[0])) is not None:
            self.folders.add(folder)

    def _note_file(self, path: object) -> None:
        if isinstance(path, str) and path.endswith(".pyc"):
            with suppress(ValueError):
                path = source_from_cache(path)
        location = self._location(path)
        if location is not None and location not in self.files:
            self.files[location] = stamp_of(location)

    def _location(self, path: object) -> str | None:
        """Return the absolute path if it counts."""
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike):
            return None
        text = os.path.abspath(path)  # noqa: PTH100 - a link is watched where it stands
        if text not in self._counted:
            self._counted[text] = text if self._counts(Path(text)) else None
        return self._counted[text]

    def _counts(self, path: Path) -> bool:
        if self._store is not None and path.is_relative_to(self._store):
            return False
        bound = next((bound for bound in self._bounds if path.is_relative_to(bound)), None)
        if bound is None or path.is_relative_to(_ENGINE):
            return False
        *folders, name = path.relative_to(bound).parts or (".",)
        return name != ".git" and not any(
            folder in _SKIPPED or folder.startswith(".") for folder in folders
        )


_MOST_NAMES: Final = 5


def _differences(view: RunView, earlier: str) -> list[str]:
    from evalcore.pipeline.compare import compare_runs
    from evalcore.storage.runs import find_run

    try:
        comparison = compare_runs(find_run(view.run.store, earlier), view.run).comparison
    except EvalError as error:  # the run before was stopped, or deleted meanwhile
        return [f"not compared ({error})"]
    found: dict[str, dict[str, None]] = {
        "passes now": {},
        "fails now": {},
        "not measured before": {},
        "not measured now": {},
    }
    for variant in comparison.variants:
        for title, differences in (
            ("passes now", variant.improvements),
            ("fails now", variant.regressions),
        ):
            found[title] |= {each.case: None for each in differences if each.kind == "assertion"}
        for each in variant.missing:
            if each.missing_from != "both":
                when = "before" if each.missing_from == "baseline" else "now"
                found[f"not measured {when}"][each.case] = None
    parts = [f"{title}: {_listed([*cases])}" for title, cases in found.items() if cases]
    return parts or ["no case differs"]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def run_round(notes_file: Path, arguments: Sequence[str]) -> int:
    """Run the suites once and write the notes; return the exit code."""
    from evalcore.cli.main import call, cli
    from evalcore.cli.options import settings
    from evalcore.settings import repository_root

    runs: dict[str, str] = orjson.loads(notes_file.read_bytes())["runs"]
    lines: list[str] = []
    opened: OpenedFiles | None = None

    def note(view: RunView) -> None:
        """Note a run and what differs from the suite's run before it."""
        report = view.report
        items = report.summary.counts.planned
        reused = sum(int(source["items"]) for source in report.run.reused)
        parts = [f"{items - reused} of {items} items executed"]
        if report.suite in runs:
            parts += _differences(view, runs[report.suite])
        runs[report.suite] = view.run.run_id
        lines.append(f"{report.suite}: {', '.join(parts)}; {report.decision}")

    def run_once(**flags: Any) -> int:
        nonlocal opened
        from evalcore.cli.running import run_command

        folders = {Path(suite).resolve().parent for suite in flags["suites"]}
        store = flags["store"] or settings().store
        folder = None if "://" in store else Path(store)
        opened = OpenedFiles([Path.cwd(), *map(repository_root, folders)], folder)
        for suite in flags["suites"]:
            opened.note("open", (suite, None, os.O_RDONLY))
        sys.addaudithook(opened.note)
        del flags["watch"]
        return int(run_command({**flags, "reuse": HISTORY}, observe=note))

    run: Any = cli.get_command(click.Context(cli), "run")
    code = call(arguments, click.Command("run", callback=run_once, params=run.params))
    files, listed = ({}, set()) if opened is None else (opened.files, opened.folders)
    written = {"runs": runs, "lines": lines, "files": files, "folders": sorted(listed)}
    notes_file.write_bytes(orjson.dumps(written))
    return code


def main() -> None:
    """Run a round with the process's arguments and end the process."""
    from evalcore.cli.main import leave
    from evalcore.redaction.redactor import redact_standard_streams

    redact_standard_streams()
    leave(run_round(Path(sys.argv[1]), sys.argv[2:]))


_ROUND: Final = (sys.executable, "-P", "-c", "from evalcore.cli.watch import main; main()")
# An editor writes a file in several steps; one that renames leaves a moment without it.
_DEBOUNCE_MS = 300
_STEP_MS = 50
# Where the system tells of no change (a network's folder), the files are looked at so often.
_LOOK_MS = 1_000


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
        _print_line(f"{_paths(changed)} changed → {what}")
        if files.postponed:
            _print_line(
                f"{_paths(files.postponed)} changed during the run again; the next save counts"
            )


def _print_line(text: str) -> None:
    say(f"[{time.strftime('%H:%M:%S')}] {text}", err=True)


def _paths(paths: Sequence[str]) -> str:
    return _listed([*map(os.path.relpath, paths)])


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

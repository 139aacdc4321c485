"""Change `quarantine.yaml` and leave its other lines, with their comments, as they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from evalcore.errors import LoadError, UsageError
from evalcore.formats.parts.quarantine_file import read_quarantine
from evalcore.formats.text.documents import read_document
from evalcore.model.quarantine import QuarantineEntry


def add_entry(path: Path, entry: QuarantineEntry) -> bool:
    """Write an entry at the end of the file; return whether it replaced one of the same case.

    Raises `LoadError` if the file has mistakes, `UsageError` if it cannot be written.
    """
    replaced = path.is_file() and remove_entry(path, entry.case, entry.suite)
    entries = [*(read_quarantine(path) if path.is_file() else ()), entry]
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text and not text.endswith("\n"):
        text += "\n"
    _write(path, text + _as_yaml([entry]) if entries[:-1] else _head(text) + _as_yaml([entry]))
    _check(path, entries)
    return replaced


def remove_entry(path: Path, case: str, suite: str | None = None) -> bool:
    """Take the entry of a case out of the file; return whether there was one."""
    entries = read_quarantine(path)
    remaining = [entry for entry in entries if (entry.case, entry.suite) != (case, suite)]
    if len(remaining) == len(entries):
        return False
    index = next(i for i, each in enumerate(entries) if (each.case, each.suite) == (case, suite))
    locate = read_document(path, str(path)).locate
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first, following = locate((index,)), locate((index + 1,))
    if first is not None:
        end = len(lines) if index + 1 == len(entries) else (following or len(lines) + 1) - 1
        # Comments before the next entry are that entry's.
        while end - 1 > first and lines[end - 1].lstrip().startswith("#"):
            end -= 1
        _write(path, "".join(lines[: first - 1] + lines[end:]))
    _check(path, remaining)
    return True


def _head(text: str) -> str:
    """Return what stands in a file without entries: its comments."""
    return "".join(line for line in text.splitlines(keepends=True) if line.lstrip().startswith("#"))


def _check(path: Path, entries: Sequence[QuarantineEntry]) -> None:
    """Write the entries anew if the edited text does not say them (lists on one line)."""
    with suppress(LoadError):
        if read_quarantine(path) == tuple(entries):
            return
    _write(path, _as_yaml(entries))


def _as_yaml(entries: Sequence[QuarantineEntry]) -> str:
    values = [
        {
            name: value
            for name in ("case", "until", "owner", "reason", "suite")
            if (value := getattr(entry, name))
        }
        for entry in entries
    ]
    if not values:
        return ""
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1_000)
    # The day is text in the core schema of this project; PyYAML quotes it for its own.
    return text


def _write(path: Path, text: str) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            mode = path.stat().st_mode & 0o777 if path.is_file() else 0o644
            Path(name).chmod(mode)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error

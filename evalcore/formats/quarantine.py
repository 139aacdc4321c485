"""`quarantine.yaml` beside a suite: which cases do not gate, until when, and who looks after them.

The file is a list of entries, the same for every format (docs/reference/quarantine.md).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml

from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.documents import Document, decode, parse_document, read_bytes, read_document
from evalcore.model.quarantine import QUARANTINE_FILE, QuarantineEntry
from evalcore.model.suite import Suite
from evalcore.wording import describe, did_you_mean, path_text

_REQUIRED: Final = {
    "case": "the id of the case",
    "until": "the last day on which the case does not gate (2026-12-24)",
    "owner": "who looks after the case",
}
_KEYS: Final = (*_REQUIRED, "reason", "suite")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


def load_quarantined(load: Callable[[], Suite], folder: Path, file: str) -> Suite:
    """Return a suite with the quarantine of its folder.

    `file` names the suite's file in messages. Raises `LoadError` with the mistakes of both files.
    """
    path = folder / QUARANTINE_FILE
    if not path.is_file():
        return load()
    problems: list[Problem] = []
    suite: Suite | None = None
    try:
        suite = load()
    except LoadError as error:
        problems += error.problems
    entries: tuple[QuarantineEntry, ...] = ()
    try:
        entries = read_quarantine(path, _beside(file, path))
    except LoadError as error:
        problems += error.problems
    if problems or suite is None:
        raise LoadError(tuple(problems))
    warnings = _unknown_cases(suite, entries, _beside(file, path))
    return replace(suite, quarantine=entries, warnings=(*suite.warnings, *warnings))


def _beside(file: str, path: Path) -> str:
    return str(Path(file).parent / path.name) if not Path(file).is_absolute() else str(path)


def read_quarantine(path: Path, file: str | None = None) -> tuple[QuarantineEntry, ...]:
    """Return the entries of a file in their order; raise `LoadError` with every mistake in it."""
    name = file or str(path)
    data = read_bytes(path, name)
    # What `remove` leaves of a file with one entry, and an editor of one without.
    if not decode(data, name).strip():
        return ()
    document = parse_document(data, name)
    raw: Any = document.value
    if raw is None:
        return ()
    if not isinstance(raw, list):
        message = f"expected a list of entries, each with case, until, owner; got {describe(raw)}"
        raise LoadError((Problem(document.file, None, "", message),))
    problems: list[Problem] = []
    entries = [_entry(document, index, item, problems) for index, item in enumerate(raw)]
    _refuse_twice(document, entries, problems)
    if problems:
        raise LoadError(tuple(problems))
    return tuple(entry for entry in entries if entry is not None)


def _entry(
    document: Document, index: int, item: Any, problems: list[Problem]
) -> QuarantineEntry | None:
    def refuse(key: str | None, message: str) -> None:
        loc = (index,) if key is None else (index, key)
        line = document.locate(loc) or document.locate((index,))
        problems.append(Problem(document.file, line, path_text(loc), message))

    if not isinstance(item, Mapping):
        refuse(None, f"expected an entry with case, until, owner; got {describe(item)}")
        return None
    count = len(problems)
    for key in item:
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS) or f" Known: {', '.join(_KEYS)}."
            refuse(str(key), f"unknown key.{hint}")
    values = {key: _text(item, key, refuse) for key in _KEYS}
    until = values["until"]
    if until is not None and not _is_day(until):
        refuse("until", f"expected a day such as 2026-12-24, got {describe(until)}")
    if len(problems) > count:
        return None
    return QuarantineEntry(
        case=values["case"] or "",
        until=until or "",
        owner=values["owner"] or "",
        reason=values["reason"] or "",
        suite=values["suite"],
    )


def _text(item: Mapping[str, Any], key: str, refuse: Callable[[str, str], None]) -> str | None:
    value = item.get(key)
    # The core schema reads an id such as 17 as a number; ids are texts in every format.
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        if key in _REQUIRED:
            refuse(key, f"is required: {_REQUIRED[key]}")
        return None
    if not isinstance(value, str):
        refuse(key, f"expected text, got {describe(value)}")
        return None
    return value


def _is_day(text: str) -> bool:
    try:
        return bool(_DAY.match(text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _refuse_twice(
    document: Document, entries: list[QuarantineEntry | None], problems: list[Problem]
) -> None:
    first: dict[tuple[str, str | None], int] = {}
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        key = entry.case, entry.suite
        if key in first:
            loc = (index, "case")
            message = f"'{entry.case}' is quarantined twice (first: [{first[key]}])"
            line = document.locate(loc)
            problems.append(Problem(document.file, line, path_text(loc), message))
        first.setdefault(key, index)


def _unknown_cases(
    suite: Suite, entries: tuple[QuarantineEntry, ...], file: str
) -> tuple[str, ...]:
    """Return a warning for each entry whose case the suite does not have."""
    definition = suite.definition
    own = [entry for entry in entries if entry.applies_to(definition.name)]
    # Filters leave out cases that the file has.
    if not own or definition.filtered:
        return ()
    return unknown_case_warnings(suite, own, file)


def unknown_case_warnings(
    suite: Suite, entries: list[QuarantineEntry], file: str
) -> tuple[str, ...]:
    """Return a warning for each entry whose case the suite does not have, with a near id."""
    missing = {entry.case for entry in entries}
    ids: set[str] = set()
    for case in suite.cases:
        missing.discard(case.id)
        ids.add(case.id)
        if not missing:
            return ()
    name = suite.definition.name
    return tuple(
        f"{file}: suite '{name}' has no case '{entry.case}', which is quarantined."
        + (
            did_you_mean(entry.case, ids)
            or " If it is of another suite of this folder, the entry's `suite` says so."
        )
        for entry in entries
        if entry.case in missing
    )


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

"""`quarantine.yaml` beside a suite: which cases do not gate, until when, and who looks after them.

The file is a list of entries, the same for every format (docs/reference/quarantine.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from datetime import date
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Required

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from evalcore.errors import LoadError, Problem, UsageError
from evalcore.formats.documents import decode, parse_document, read_bytes
from evalcore.model.suite import QUARANTINE_FILE, QuarantineEntry, Suite
from evalcore.problems import Problems
from evalcore.shapes import adapter
from evalcore.wording import describe, did_you_mean


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
    own = [entry for entry in entries if entry.applies_to(suite.definition.name)]
    # Filters leave out cases that the file has.
    is_whole = bool(own) and not suite.definition.filtered
    warnings = unknown_case_warnings(suite, own, _beside(file, path)) if is_whole else ()
    return replace(suite, quarantine=entries, warnings=(*suite.warnings, *warnings))


def _beside(file: str, path: Path) -> str:
    return str(Path(file).parent / path.name) if not Path(file).is_absolute() else str(path)


def _text(value: Any) -> Any:
    """Return an id such as 17 as the text that ids are in every format."""
    return str(value) if type(value) is int else value


def _day(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise ValueError(f"expected a day such as 2026-12-24, got {describe(text)}")


Text = Annotated[str, BeforeValidator(_text), Field(min_length=1)]


@with_config(ConfigDict(extra="forbid", strict=True))
class QuarantineShape(TypedDict, total=False):
    """An entry: a case, the last day on which it does not gate, and who looks after it."""

    case: Required[Text]
    until: Required[Annotated[Text, AfterValidator(_day)]]
    owner: Required[Text]
    reason: str | None
    suite: Text | None


def read_quarantine(path: Path, file: str | None = None) -> tuple[QuarantineEntry, ...]:
    """Return the entries of a file in their order; raise `LoadError` with every mistake in it."""
    name = file or str(path)
    data = read_bytes(path, name)
    # What `remove` leaves of a file with one entry, and an editor of one without.
    if not decode(data, name).strip():
        return ()
    document = parse_document(data, name)
    if document.value is None:
        return ()
    problems = Problems(document.file, document.locate)
    problems.check_shape(document.value, list[QuarantineShape])
    problems.raise_if_any()
    entries: dict[tuple[str, str | None], QuarantineEntry] = {}
    for index, written in enumerate(adapter(list[QuarantineShape]).validate_python(document.value)):
        entry = QuarantineEntry(**{**written, "reason": written.get("reason") or ""})
        if entries.setdefault((entry.case, entry.suite), entry) is not entry:
            problems.add((index, "case"), f"'{entry.case}' is quarantined twice")
    problems.raise_if_any()
    return tuple(entries.values())


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
    entries = read_quarantine(path) if path.is_file() else ()
    rest = _without(entries, entry.case, entry.suite)
    _write(path, [*rest, entry])
    return len(rest) < len(entries)


def remove_entry(path: Path, case: str, suite: str | None = None) -> bool:
    """Take the entry of a case out of the file; return whether there was one."""
    entries = read_quarantine(path)
    rest = _without(entries, case, suite)
    if len(rest) < len(entries):
        _write(path, rest)
    return len(rest) < len(entries)


def _without(
    entries: Iterable[QuarantineEntry], case: str, suite: str | None
) -> list[QuarantineEntry]:
    return [each for each in entries if (each.case, each.suite) != (case, suite)]


def _write(path: Path, entries: Iterable[QuarantineEntry]) -> None:
    """Write the file anew; of its comments those before the first entry stay."""
    # Readers see the old file or the new one.
    copy = path.with_name(f".{path.name}-{os.getpid()}")
    values = [{name: value for name, value in asdict(entry).items() if value} for entry in entries]
    try:
        lines = path.read_text("utf-8-sig").splitlines(keepends=True) if path.is_file() else []
        text = "".join(takewhile(lambda line: line.startswith("#"), lines))
        # The day is text in the core schema of this project; PyYAML quotes it for its own.
        text += yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1_000)
        copy.write_text(text, "utf-8")
        copy.replace(path)
    except OSError as error:
        copy.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error

"""Where the tests of a test file stand: in it, in JSONL lines, in tables, in other files."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.errors import EvalError, LoadError, Problem
from evalcore.formats.environment import MARK
from evalcore.formats.problems import Problems
from evalcore.formats.source import Loc, json_reason, parse_json, read_document
from evalcore.formats.tables import is_table, table_tests
from evalcore.trust.files import repository_root, resolve_inside

MAX_LINE_BYTES = 16 * 1024 * 1024


class RawTest(NamedTuple):
    """One test as it was written, where it stands, and the collector of its mistakes."""

    value: Any
    loc: Loc
    problems: Problems
    marked: bool = True


def listed_tests(raw: list[Any], loc: Loc, problems: Problems) -> Iterator[RawTest]:
    """Yield the tests of a list in a document."""
    for index, value in enumerate(raw):
        yield RawTest(value, (*loc, index), problems)


def file_tests(path: Path, name: str, columns: Mapping[str, str]) -> Iterator[RawTest]:
    """Yield the tests of a file of tests: JSONL, a table, or YAML/JSON with a list."""
    if path.suffix.lower() == ".jsonl":
        yield from jsonl_tests(path, name)
    elif is_table(path):
        for value, problems in table_tests(path, name, columns):
            yield RawTest(value, (), problems)
    else:
        document = read_document(path, name)
        problems = Problems(name, document.locate)
        raw, loc = document.value, ()
        if isinstance(raw, dict):
            raw, loc = raw.get("tests"), ("tests",)  # type: ignore[assignment]
        if not isinstance(raw, list):
            problems.add(loc, "expected a list of tests")
            raw = []
        yield from listed_tests(raw, loc, problems)


def jsonl_tests(path: Path, name: str) -> Iterator[RawTest]:
    """Yield one test a line; blank lines are skipped, a line that is not JSON is a mistake."""
    number = 0
    problems = Problems(name, lambda _: number, cheap=True)
    mark = MARK.encode()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if len(line) > MAX_LINE_BYTES:
                    limit = MAX_LINE_BYTES // 2**20
                    problems.add((), f"a line of more than {limit} MiB; move the input to a file")
                    continue
                content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                try:
                    value = parse_json(content)
                except ValueError as error:
                    if content.strip():
                        problems.add((), f"not valid JSON: {json_reason(error)}")
                    continue
                yield RawTest(value, (), problems, mark in line)
    except OSError as error:
        message = "no such file" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise LoadError((Problem(name, None, "", message),)) from error
    # The collector is handed over once more, so that a file of broken lines only is reported.
    yield RawTest(None, (), problems)


def named_tests(
    names: list[str], loc: Loc, folder: Path, columns: Mapping[str, str], problems: Problems
) -> Iterator[RawTest]:
    """Yield the tests of the files that `tests` names (paths or globs, `file://` allowed)."""
    root = repository_root(folder)
    for index, written in enumerate(names):
        place = (*loc, index) if len(names) > 1 else loc
        pattern = written.removeprefix("file://")
        found = sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207  (`..` works)
        if not found and glob.has_magic(pattern):
            problems.add(place, f"no file matches '{pattern}' in {folder}")
        for name in found or ([] if glob.has_magic(pattern) else [pattern]):
            try:
                path = resolve_inside(root, folder, name)
            except EvalError as error:
                problems.add(place, str(error))
                continue
            yield from file_tests(path, name, columns)

"""Where the tests of a suite stand: in its file, in JSONL lines, in tables, in other files."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Final, NamedTuple, Protocol

from evalcore.datasets.reference import names_dataset
from evalcore.errors import EvalError, LoadError, Problem
from evalcore.formats.parts.case_folders import case_folders
from evalcore.formats.parts.dataset_tests import dataset_tests
from evalcore.formats.parts.file_digest import file_digest
from evalcore.formats.parts.interpolation import MARK
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.formats.parts.remote_tests import is_remote, remote_tests
from evalcore.formats.parts.table_rows import REQUIRED, is_table, table_tests, text_of
from evalcore.formats.text.documents import parse_json, read_document
from evalcore.formats.text.syntax_reasons import json_reason
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import shown_path
from evalcore.model.suite import DatasetSource
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.trust.globs import has_magic, matching_files

MAX_LINE_BYTES: Final = 16 * 1024 * 1024


class NamedFiles(NamedTuple):
    """How files of tests that a suite names are read.

    `columns` maps fields of a test to columns of tables; addresses `s3://…` have to lie below one
    of `datasets`, of which the first is the store of the run. In it stand the datasets that
    `dataset:NAME@VERSION` names; which versions were read is noted in `versions`.
    """

    folder: Path
    columns: Mapping[str, str]
    datasets: Sequence[str] = ()
    versions: list[DatasetSource] | None = None


def suite_tests(
    tests: Any, loc: Loc, files: NamedFiles, problems: Problems, *, noun: str
) -> Iterator[RawTest]:
    """Yield the raw tests of `tests`: a list of them, a path or address, or a list of those.

    `noun` is what a test is called in the suite's format.
    """
    if isinstance(tests, str):
        return named_tests([tests], loc, files, problems)
    if not isinstance(tests, list):
        problems.add(loc, f"expected a list of {noun}s, a path, or a list of paths")
        return iter(())
    if not tests:
        problems.add(loc, f"holds no {noun}")
    if not any(isinstance(item, str) for item in tests):
        return listed_tests(tests, loc, problems)
    return _mixed_tests(tests, loc, files, problems)


def listed_tests(raw: list[Any], loc: Loc, problems: Problems) -> Iterator[RawTest]:
    """Yield the tests of a list in a document."""
    for index, value in enumerate(raw):
        yield RawTest(value, (*loc, index), problems)


def _mixed_tests(
    raw: list[Any], loc: Loc, files: NamedFiles, problems: Problems
) -> Iterator[RawTest]:
    """Yield the tests of a list in which texts name files and mappings are tests."""
    for index, value in enumerate(raw):
        at = (*loc, index) if len(raw) > 1 else loc
        if isinstance(value, str):
            yield from named_tests([value], at, files, problems)
        else:
            yield RawTest(value, (*loc, index), problems)


def file_tests(
    path: Path,
    name: str,
    columns: Mapping[str, str],
    suite: Problems,
    required: Sequence[str] = REQUIRED,
    shared: SharedLines | None = None,
) -> Iterator[RawTest]:
    """Yield the tests of a file of tests: JSONL, a table, or YAML/JSON with a list.

    Mistakes in `columns` are noted in `suite`, the collector of the file that holds them. A table
    has to have the `required` columns.
    """
    if path.suffix.lower() == ".jsonl":
        yield from jsonl_tests(path, name, shared)
    elif is_table(path):
        yield from table_tests(path, name, columns, suite, required)
    else:
        document = read_document(path, name)
        problems = Problems(name, document.locate)
        yield RawTest(NO_TEST, (), problems)
        raw, loc = document.value, Loc()
        for key in ("tests", "cases") if isinstance(raw, dict) else ():
            if key in raw:
                raw, loc = raw[key], (key,)
                break
        if isinstance(raw, list):
            yield from listed_tests(raw, loc, problems)
        else:
            problems.add(loc, "expected a list of tests, or a mapping with 'tests: [...]'")


class LinePosition(NamedTuple):
    """The beginning of a line: how many lines and bytes stand before it."""

    lines: int = 0
    offset: int = 0


class SharedLines(Protocol):
    """Lines that other processes read: those after the first `lines`."""

    @property
    def lines(self) -> int:
        """How many lines are read here."""

    def join(self, problems: Problems) -> LinePosition:
        """Take what the others have read; return from where on the rest is to be read here."""


def jsonl_tests(
    path: Path,
    name: str,
    shared: SharedLines | None = None,
    start: LinePosition | None = None,
    end: int | None = None,
) -> Iterator[RawTest]:
    """Yield one test a line; blank lines are skipped, a line that is not JSON is a mistake.

    The lines from `start` on, without those that are `shared` with other processes; with an `end`
    those of the first `end` lines alone, and no `NO_TEST`.
    """
    number, offset = start or LinePosition()
    stop = end if shared is None else shared.lines
    problems = Problems(name, lambda _: number, cheap=True)
    mark = MARK.encode()
    try:
        with path.open("rb") as file:
            file.seek(offset)
            for line in _lines(file):
                if number == stop:
                    if shared is None:
                        break
                    position, shared, stop = shared.join(problems), None, None
                    if position.lines != number:
                        number, offset = position
                        file.seek(offset)
                        continue
                number += 1
                value = _row_of(line, number, problems)
                if line is None or value is NO_TEST:
                    continue
                yield RawTest(value, (), problems, mark in line, is_data=True)
    except OSError as error:
        raise LoadError((Problem(name, None, "", open_reason(error)),)) from error
    if end is None:
        yield RawTest(NO_TEST, (), problems)


def _row_of(line: bytes | None, number: int, problems: Problems) -> Any:
    """Return what a line holds; `NO_TEST` for a blank one and, noted, for one that is wrong."""
    if line is None:
        limit = MAX_LINE_BYTES // 2**20
        problems.add((), f"a line of more than {limit} MiB; move the input to a file")
        return NO_TEST
    content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    try:
        value = parse_json(content)
    except ValueError as error:
        if content.strip():
            problems.add((), _line_reason(content, error))
        return NO_TEST
    if type(value) is dict and "output" in value:
        _move_output(value, problems)
    return value


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines; None for one of more than `MAX_LINE_BYTES`, which is never read whole."""
    for line in iter(partial(file.readline, MAX_LINE_BYTES + 1), b""):
        if len(line) <= MAX_LINE_BYTES:
            yield line
            continue
        part = line
        while part and not part.endswith(b"\n"):
            part = file.readline(MAX_LINE_BYTES)
        yield None


def _refuse_stream(path: Path, name: str) -> None:
    """Raise `LoadError` for rows that end once only, or never: rows are read more than once."""
    try:
        mode = path.stat().st_mode
    except OSError:  # the reading says why
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        message = "is a pipe or a device; save its rows as a file"
        raise LoadError((Problem(name, None, "", message),))


def digest_of(path: Path, name: str) -> Callable[[], str]:
    """Return what gives a file's SHA-256 (`file_digest`); raise `LoadError`, as it does."""
    _refuse_stream(path, name)
    try:
        digest = file_digest(path)
    except OSError as error:
        raise LoadError((Problem(name, None, "", open_reason(error)),)) from error

    def wait() -> str:
        try:
            return digest()
        except OSError as error:
            raise LoadError((Problem(name, None, "", open_reason(error)),)) from error

    return wait


def open_reason(error: OSError) -> str:
    """Return why a file of tests cannot be opened, in our words."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "is a folder; name a suite file"
    return f"cannot be read: {error.strerror}"


def _line_reason(line: bytes, error: ValueError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as broken:
        return f"not UTF-8 (byte 0x{line[broken.start]:02x}); save it as UTF-8"
    hint = " (each line is a test of its own)" if "EOF while" in str(error) else ""
    return f"not valid JSON: {json_reason(error)}{hint}"


def _move_output(value: dict[str, Any], problems: Problems) -> None:
    """Put the column `output` where a test has its given answer; null is no answer."""
    output = value.pop("output")
    if output is None:
        return
    if "fixtures" in value:
        problems.add(("output",), "is given here and as 'fixtures'; remove one of them")
        return
    value["fixtures"] = {"output": text_of(output)}


def named_tests(
    names: list[str], loc: Loc, files: NamedFiles, problems: Problems
) -> Iterator[RawTest]:
    """Yield the tests of the files that `names` are (paths, globs or addresses).

    A file that cannot be read is a mistake of its own; the others are read all the same.
    """
    folder = files.folder
    root = repository_root(folder)
    for index, written in enumerate(names):
        name_loc = (*loc, index) if len(names) > 1 else loc
        if names_dataset(written):
            used = [] if files.versions is None else files.versions
            yield from dataset_tests(written, files.datasets, name_loc, problems, used)
            continue
        if is_remote(written):
            yield from remote_tests(
                written, files.datasets, files.columns, name_loc, problems, file_tests
            )
            continue
        for name in _matching(written.removeprefix("file://"), folder, root, name_loc, problems):
            try:
                if name.endswith("/") or (folder / name).is_dir():
                    yield from case_folders(root, folder, name, name_loc, problems)
                    continue
                path = resolve_inside(root, folder, name)
            except (EvalError, OSError) as error:
                problems.add(name_loc, str(error))
                continue
            try:
                yield from file_tests(path, shown_path(path), files.columns, problems)
            except LoadError as error:
                problems.include(error.problems)


def names_path(written: str, path: Path) -> bool:
    """Whether a name or a glob, written in a file beside `path`, names `path`."""
    if is_remote(written) or names_dataset(written):
        return False
    name = written.removeprefix("file://")
    if not has_magic(name):
        return (path.parent / name).resolve() == path.resolve()
    return PurePath(path.name).match(name.removeprefix("./").removeprefix("**/"))


def _matching(pattern: str, folder: Path, root: Path, loc: Loc, problems: Problems) -> list[str]:
    """Return the names that a pattern matches, sorted; a plain name stands for itself."""
    if not has_magic(pattern):
        return [pattern]
    try:
        names = matching_files(pattern, folder, root)
    except (EvalError, OSError, ValueError) as error:
        problems.add(loc, f"cannot look for '{pattern}': {error}")
        return []
    if not names:
        problems.add(loc, f"no file matches '{pattern}' in {folder.resolve()}")
    return names

"""Where the tests of a suite stand: in its file, in JSONL lines, in tables, in other files."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from evalcore.datasets.reference import names_dataset
from evalcore.errors import EvalError, LoadError, Problem
from evalcore.formats.parts.case_folders import case_folders
from evalcore.formats.parts.dataset_tests import dataset_tests
from evalcore.formats.parts.file_digest import file_digest
from evalcore.formats.parts.given_output import move_output, name_by_number
from evalcore.formats.parts.json_lines import jsonl_tests, open_reason
from evalcore.formats.parts.json_rows import listed_rows
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.formats.parts.remote_tests import is_remote, remote_tests
from evalcore.formats.parts.table_rows import REQUIRED, is_table, table_tests
from evalcore.formats.text.documents import read_document
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import shown_path
from evalcore.model.suite import DatasetSource
from evalcore.trust.files import has_magic, matching_files, repository_root, resolve_inside


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


def listed_tests(
    raw: list[Any], loc: Loc, problems: Problems, *, marked: bool = True
) -> Iterator[RawTest]:
    """Yield the tests of a list in a document."""
    for index, value in enumerate(raw):
        yield RawTest(value, (*loc, index), problems, marked)


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
) -> Iterator[RawTest]:
    """Yield the tests of a file of tests: JSONL, a table, or YAML/JSON with a list.

    Mistakes in `columns` are noted in `suite`, the collector of the file that holds them. A table
    has to have the `required` columns.
    """
    if is_table(path, columns):
        yield from table_tests(path, name, columns, suite, required)
    elif path.suffix.lower() == ".jsonl":
        yield from jsonl_tests(path, name)
    else:
        yield from _document_tests(path, name)


def _document_tests(path: Path, name: str) -> Iterator[RawTest]:
    """Yield the tests of a YAML or JSON file that holds a list.

    Those of JSON may have `output`; most are exports of other programs, so their text is data.
    """
    document = read_document(path, name)
    problems = Problems(name, document.locate)
    yield RawTest(NO_TEST, (), problems)
    raw, loc = listed_rows(document.value)
    if not isinstance(raw, list):
        problems.add(loc, "expected a list of tests, or a mapping with 'tests: [...]'")
        return
    is_json = path.suffix.lower() == ".json"
    if is_json:
        for index, test in enumerate(raw):
            if isinstance(test, dict):
                name_by_number(test)
                if "output" in test:
                    move_output(test, (*loc, index), problems)
    yield from listed_tests(raw, loc, problems, marked=not is_json)


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

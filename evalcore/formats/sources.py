"""Where the tests of a suite are: in its file, in rows, in other files, in a dataset or a store."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, Protocol

from evalcore.datasets.reference import names_dataset
from evalcore.errors import EvalError, LoadError, Problem
from evalcore.formats.documents import (
    Document,
    collector_paused,
    raise_problem,
    read_document,
    without_notes,
)
from evalcore.formats.options import Selection
from evalcore.formats.rows import (
    NO_TEST,
    REQUIRED,
    TESTS_KEYS,
    RawTest,
    is_table,
    jsonl_tests,
    listed_rows,
    move_output,
    name_by_number,
    open_reason,
    table_tests,
)
from evalcore.formats.warnings import ReferenceFields, UnjudgedCases
from evalcore.model.suite import Case, DatasetSource
from evalcore.planning.spool import CaseSpool
from evalcore.problems import Problems
from evalcore.storage.store import ObjectStore
from evalcore.trust.files import (
    has_magic,
    matching_files,
    place_inside,
    repository_root,
    resolve_inside,
)
from evalcore.trust.machine_faults import temporary_folder
from evalcore.wording import Loc, shown_path


def names_stored_cases(tests: Any) -> bool:
    """Whether tests, or cases, are datasets of the store or addresses, at least in part."""
    named = [tests] if isinstance(tests, str) else tests if isinstance(tests, list) else ()
    return any(names_dataset(name) or (isinstance(name, str) and is_remote(name)) for name in named)


def dataset_tests(
    written: str, stores: Sequence[str], loc: Loc, problems: Problems, used: list[DatasetSource]
) -> Iterator[RawTest]:
    """Yield the tests of a dataset's version, and note in `used` which one that is.

    The dataset is that of the first of `stores`, the store of the run. What is wrong with the name
    is noted at `loc`; what is wrong in a case names the dataset and the case's number. One part of
    the version is in memory at a time.
    """
    if not stores:
        problems.add(loc, f"'{written}' is read from a store: choose one with --store")
        return
    import orjson

    from evalcore.datasets.case_lines import version_lines
    from evalcore.datasets.reference import parse_reference
    from evalcore.datasets.versions import find_version
    from evalcore.storage.address import open_store

    number = 0
    try:
        reference = parse_reference(written)
        store = open_store(stores[0])
        version = find_version(store, reference)
        source = DatasetSource(version.dataset, version.version, version.sha256)
        if source not in used:
            used.append(source)
        rows = Problems(f"dataset:{version.reference}", lambda _: number, cheap=True)
        yield RawTest(NO_TEST, (), rows)
        for line in version_lines(store, version):
            number += 1
            yield RawTest(orjson.loads(line), (), rows, marked=False, is_data=True)
    except EvalError as error:
        problems.add(loc, str(error))


SCHEME = "s3://"


_SUFFIXES = (".jsonl", ".csv", ".parquet", ".yaml", ".yml", ".json")


def is_remote(name: str) -> bool:
    """Whether a name in `tests` is an address rather than a path."""
    return name.lower().startswith(SCHEME)


def remote_tests(
    address: str,
    roots: Sequence[str],
    columns: Mapping[str, str],
    loc: Loc,
    problems: Problems,
) -> Iterator[RawTest]:
    """Yield the tests of the object (or, with `*`, the objects) at an address.

    One object at a time stands in a temporary file while it is read. What is wrong with the address
    is noted at `loc`; what is wrong in an object names the object.
    """
    bucket, _, key = address[len(SCHEME) :].partition("/")
    refused = _refusal(address, bucket, key, roots)
    if refused is not None:
        problems.add(loc, refused)
        return
    try:
        from evalcore.storage.s3 import S3Settings, S3Store

        store = S3Store(bucket, "", S3Settings.from_environment(os.environ))
        keys = _matching(store, key)
        if not keys:
            problems.add(loc, f"no object matches '{address}'")
        for name in keys:
            object_address = f"{SCHEME}{bucket}/{name}"
            with temporary_folder("evalcore-tests-") as folder:
                path = folder / f"tests{PurePosixPath(name).suffix.lower()}"
                store.download(name, path)
                # An object of any form is data.
                for test in file_tests(path, object_address, columns, problems):
                    yield test._replace(is_data=True)
    except LoadError as error:
        problems.include(error.problems)
    except EvalError as error:
        problems.add(loc, str(error))


def _refusal(address: str, bucket: str, key: str, roots: Sequence[str]) -> str | None:
    """Return why an address is not read; None if it is."""
    if not bucket or not key or "@" in bucket or any(mark in address for mark in "#\\"):
        return "expected an address such as s3://bucket/folder/cases.parquet"
    parts = key.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return f"'{address}' has an empty, '.' or '..' part"
    suffix = PurePosixPath(key).suffix.lower()
    if suffix not in _SUFFIXES:
        return f"'{address}' is no file of tests: {', '.join(_SUFFIXES)} are read"
    if not any(_is_below([bucket, *parts], root) for root in roots):
        return (
            f"'{address}' lies outside of the configured store; to read it, allow its address: "
            f"EVALCORE_ALLOW_DATASETS={SCHEME}{'/'.join([bucket, *parts[:-1]])}, or allow_datasets "
            "in evalcore.toml"
        )
    return None


def _is_below(parts: Sequence[str], root: str) -> bool:
    """Whether an address' parts begin with all of the root's."""
    if not is_remote(root):
        return False
    fixed = [part for part in root[len(SCHEME) :].split("/") if part]
    # A pattern must not reach above the root: it begins with all of the root's parts.
    return bool(fixed) and len(parts) > len(fixed) and list(parts[: len(fixed)]) == fixed


def _matching(store: ObjectStore, key: str) -> list[str]:
    """Return the keys that a pattern matches, sorted; a plain key stands for itself."""
    if not glob.has_magic(key):
        return [key]
    parts = key.split("/")
    fixed = next(index for index, part in enumerate(parts) if glob.has_magic(part))
    prefix = "".join(f"{part}/" for part in parts[:fixed])
    return sorted(info.key for info in store.list(prefix) if _is_match(info.key.split("/"), parts))


def _is_match(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether each part matches its pattern; `*` stays within a part."""
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


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
    listed = [tests] if isinstance(tests, str) else tests
    if not isinstance(listed, list):
        problems.add(loc, f"expected a list of {noun}s, a path, or a list of paths")
        return
    if not listed:
        problems.add(loc, f"holds no {noun}")
    for index, value in enumerate(listed):
        if isinstance(value, str):
            at = (*loc, index) if len(listed) > 1 else loc
            yield from _named_tests(value, at, files, problems)
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
    for index, test in enumerate(raw):
        if is_json and isinstance(test, dict):
            name_by_number(test)
            if "output" in test:
                move_output(test, (*loc, index), problems)
        yield RawTest(test, (*loc, index), problems, marked=not is_json)


def digest_of(path: Path, name: str) -> str:
    """Return a file's SHA-256 (hex); raise `LoadError` for one that cannot be read again."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise_problem(name, None, "is a pipe or a device; save its rows as a file")
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise_problem(name, None, open_reason(error))


def _named_tests(
    written: str, loc: Loc, files: NamedFiles, problems: Problems
) -> Iterator[RawTest]:
    """Yield the tests of what a name stands for: a path, a glob, an address or a dataset.

    A file that cannot be read is a mistake of its own; the others are read all the same.
    """
    if names_dataset(written):
        used = [] if files.versions is None else files.versions
        yield from dataset_tests(written, files.datasets, loc, problems, used)
        return
    if is_remote(written):
        yield from remote_tests(written, files.datasets, files.columns, loc, problems)
        return
    root = repository_root(files.folder)
    pattern = written.removeprefix("file://")
    for name in _matching_files(pattern, files.folder, root, loc, problems):
        try:
            path = resolve_inside(root, files.folder, name)
            yield from file_tests(path, shown_path(path), files.columns, problems)
        except LoadError as error:
            problems.include(error.problems)
        except (EvalError, OSError) as error:
            problems.add(loc, str(error))


def _matching_files(
    pattern: str, folder: Path, root: Path, loc: Loc, problems: Problems
) -> list[str]:
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


_OTHER_KEYS: Final = ("eval", "workflow", "cases", "suites")


def defaults_beside(path: Path) -> Document | None:
    """Return the YAML file of the same base name, unless it is a suite of other tests.

    One whose `tests` name this very file holds its defaults as well.
    """
    base = path.stem.removesuffix(".eval")
    for name in (f"{base}.eval.yaml", f"{base}.eval.yml", f"{base}.yaml", f"{base}.yml"):
        if (path.parent / name).is_file():
            beside = place_inside(path.parent, name, "file")
            document = read_document(beside, shown_path(path.resolve().parent / name))
            raw = document.value
            if not isinstance(raw, dict) or any(key in raw for key in _OTHER_KEYS):
                continue
            named = [raw[key] for key in TESTS_KEYS if key in raw]
            if not named or (len(named) == 1 and _names_file(named[0], path)):
                return replace(document, value=without_notes(raw))
    return None


def _names_file(tests: Any, path: Path) -> bool:
    """Whether the `tests` of a suite file are, perhaps among others, the file at `path`."""
    names = [tests] if isinstance(tests, str) else tests if isinstance(tests, list) else ()
    return any(
        path.resolve().match(name.removeprefix("file://").removeprefix("./"))
        for name in names
        if isinstance(name, str) and not is_remote(name)
    )


_LISTS: Final = ("assertions", "assert", "evaluators")
_NESTED: Final = (*_LISTS, "aggregator", "prompt", "grader")
_RUNS: Final = ("command", "script", "callable", "preprocessors")
_PROGRAMS: Final = frozenset({"code-grader", "code-judge", "python"})
_PLUGIN: Final = "custom:"
_WORKSPACE: Final = ("hooks", "repos", "scripts", "command")
_PARTS: Final = frozenset({"turns", "execution", "target", "targets", "flow", "hooks", "workspace"})
# Most rows have nothing else: texts that are compared.
COMPARED: Final = frozenset(
    {"contains", "icontains", "equals", "regex", "starts-with", "ends-with", "is-json", "latency"}
)
_INSTEAD: Final = (
    "a row of data adds nothing that runs; declare it in the suite file or, for a file of rows, in "
    "the defaults file beside it (`assertions:`)"
)


class RowRules(NamedTuple):
    """What rows of a suite may name: types of assertions that the suite has `declared`.

    `programs` are types that run a program.
    """

    declared: Collection[str] = ()
    programs: Collection[str] = ()


NOTHING_DECLARED: Final = RowRules()


def forbidden_parts(test: Any, rules: RowRules = NOTHING_DECLARED) -> Iterator[tuple[Loc, str]]:
    """Yield what a row holds that only a suite file may, each with its path and a message."""
    if not isinstance(test, dict):
        return
    yield from _of_lists(test, (), rules)
    if _PARTS.isdisjoint(test):
        return
    turns = test.get("turns")
    for number, turn in enumerate(turns if isinstance(turns, list) else ()):
        yield from _of_lists(turn, ("turns", number), rules)
    execution = test.get("execution")
    if execution is not None:
        yield from _of_execution(execution, rules)
    for key in ("target", "targets", "flow", "hooks"):
        if isinstance(test.get(key), dict) or (key == "hooks" and test.get(key)):
            yield (key,), f"a {key.rstrip('s')} cannot be defined here: {_INSTEAD}"
    workspace = test.get("workspace")
    if isinstance(workspace, dict):
        for key in _WORKSPACE:
            if workspace.get(key):
                yield ("workspace", key), f"'{key}' runs commands: {_INSTEAD}"


def _of_lists(part: Any, loc: Loc, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    for key in _LISTS if isinstance(part, dict) else ():
        if key in part:
            yield from _of_list(part[key], (*loc, key), rules)


def _of_execution(execution: Any, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    if not isinstance(execution, dict):
        return
    yield from _of_lists(execution, ("execution",), rules)
    if isinstance(execution.get("target"), dict):
        message = f"a target cannot be defined here, only named: {_INSTEAD}"
        yield ("execution", "target"), message


def _of_list(assertions: Any, loc: Loc, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    for number, assertion in enumerate(assertions if isinstance(assertions, list) else ()):
        if not isinstance(assertion, dict):
            continue
        written = assertion.get("type")
        if not (isinstance(written, str) and written in COMPARED):
            yield from _of_assertion(assertion, (*loc, number), rules)


def _of_assertion(
    assertion: Mapping[str, Any], loc: Loc, rules: RowRules
) -> Iterator[tuple[Loc, str]]:
    if "include" in assertion:
        yield (*loc, "include"), f"a template may hold what runs programs: {_INSTEAD}"
        return
    written = assertion.get("type")
    kind = written.replace("_", "-").lower() if isinstance(written, str) else ""
    bare = kind.removeprefix("not-")
    is_plugin = bare.startswith(_PLUGIN) or (kind and written in rules.programs)
    if bare in _PROGRAMS or (is_plugin and written not in rules.declared):
        yield (*loc, "type"), f"'{written}' runs a program: {_INSTEAD}"
        return
    for key in _RUNS:
        if assertion.get(key):
            yield (*loc, key), f"'{key}' runs a program: {_INSTEAD}"
    for key in _NESTED:
        inner = assertion.get(key)
        if isinstance(inner, list):
            yield from _of_list(inner, (*loc, key), rules)
        elif isinstance(inner, dict):
            yield from _of_assertion(inner, (*loc, key), rules)


def declared_types(suite: Any) -> frozenset[str]:
    """Return the types of the assertions that a suite file declares for all of its cases."""
    if not isinstance(suite, Mapping):
        return frozenset()
    listed = [suite.get(key) for key in _LISTS]
    return frozenset(
        entry["type"]
        for assertions in listed
        if isinstance(assertions, list)
        for entry in assertions
        if isinstance(entry, Mapping) and isinstance(entry.get("type"), str)
    )


class ItemReader(Protocol):
    """What turns raw tests into cases."""

    def read(self, value: Any, loc: Loc, problems: Problems, *, marked: bool = True) -> Case | None:
        """Return the case at `loc`, or note every mistake in it and return None."""


class Spooled(NamedTuple):
    """The cases, and every collector of mistakes: the suite's first, then those of its files.

    `absent_fields` are the fields to be compared that no expected output has; `unjudged` has the
    cases that ask the default judge.
    """

    cases: CaseSpool
    collectors: tuple[Problems, ...]
    absent_fields: tuple[str, ...]
    unjudged: UnjudgedCases


def spool_rows(
    rows: Iterable[RawTest],
    reader: ItemReader,
    selection: Selection,
    collectors: Sequence[Problems],
    *,
    noun: str,
    references: ReferenceFields,
    rules: RowRules = NOTHING_DECLARED,
) -> Spooled:
    """Return the valid, selected cases; the caller raises what the collectors hold.

    The first collector is the suite's own. `rules` say what rows of data
    may name. `noun` is what a case is called in the suite's format.
    """
    spool, unjudged = CaseSpool(), UnjudgedCases()
    every = {id(collector): collector for collector in collectors}
    last = collectors[0]
    read = 0
    try:
        with collector_paused():
            for row in rows:
                value, loc, problems, _, _ = row
                if problems is not last:
                    every[id(problems)] = last = problems
                if value is NO_TEST:
                    continue
                read += 1
                case = _case_of(row, reader, rules)
                if case is not None:
                    references.note(case)
                if case is None or not selection.keeps(case.id, case.tags):
                    continue
                append_case(spool, case, loc, problems, noun=noun)
                unjudged.note(case)
    except LoadError as error:
        last.include(error.problems)
    if not read and not any(collector.count for collector in every.values()):
        last.include([Problem(last.file, None, "", f"holds no {noun}")])
    return Spooled(spool, tuple(every.values()), references.absent(spool), unjudged)


def _case_of(row: RawTest, reader: ItemReader, rules: RowRules) -> Case | None:
    """Return the case of a row; None, and every mistake noted, if it is wrong."""
    value, loc, problems, marked, is_data = row
    before = problems.count
    for inner, message in forbidden_parts(value, rules) if is_data else ():
        label = f"'{value['id']}'" if isinstance(value.get("id"), str) else ""
        problems.add((*loc, *inner), message, label=label)
    return reader.read(value, loc, problems, marked=marked) if problems.count == before else None


def append_case(spool: CaseSpool, case: Case, loc: Loc, problems: Problems, *, noun: str) -> None:
    """Append the case; note one that cannot be stored as JSON."""
    try:
        spool.append(case)
    except (TypeError, RecursionError) as error:
        problems.add(loc, f"{noun} '{case.id}' holds a value that JSON cannot: {error}")

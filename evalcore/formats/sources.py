"""Where the tests of a suite are: in its file, in rows, in other files, in a dataset or a store."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

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
from evalcore.trust.files import (
    has_magic,
    matching_files,
    place_inside,
    repository_root,
    resolve_inside,
)
from evalcore.wording import Loc, shown_path

_SCHEME = "s3://"


def names_stored_cases(tests: Any) -> bool:
    """Whether tests, or cases, are datasets of the store, at least in part."""
    return any(map(names_dataset, tests if isinstance(tests, list) else [tests]))


def dataset_tests(
    written: str, address: str | None, loc: Loc, problems: Problems, used: list[DatasetSource]
) -> Iterator[RawTest]:
    """Yield the tests of a dataset's version, and note in `used` which one that is.

    `address` is that of the run's store. What is wrong with the name is noted at `loc`; what is
    wrong in a case names the dataset and the case's number. One part of the version is in memory at
    a time.
    """
    if address is None:
        problems.add(loc, f"'{written}' is read from a store: choose one with --store")
        return
    import orjson

    from evalcore.datasets.reference import parse_reference
    from evalcore.datasets.store import find_version, version_lines
    from evalcore.storage.address import open_store

    number = 0
    try:
        reference = parse_reference(written)
        store = open_store(address)
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


class NamedFiles(NamedTuple):
    """How files of tests that a suite names are read.

    `columns` maps fields of a test to columns of tables. The datasets that `dataset:NAME@VERSION`
    names stand in `store`; which versions were read is noted in `versions`.
    """

    folder: Path
    columns: Mapping[str, str]
    store: str | None = None
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
        yield from dataset_tests(written, files.store, loc, problems, used)
        return
    if written.startswith(_SCHEME):
        message = "copy the object into a file, or `evalcore dataset import` it: a suite reads no"
        problems.add(loc, f"{message} address ('{written}')")
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
        if isinstance(name, str)
    )


_LISTS: Final = ("assertions", "assert", "evaluators")
_NESTED: Final = (*_LISTS, "aggregator", "prompt", "grader")
_JUDGED_PARTS: Final = (*_LISTS, "turns", "execution")
_OTHER_PARTS: Final = frozenset({"execution", "flow", "hooks", "target", "targets", "workspace"})
_RUNS: Final = ("command", "script", "callable", "preprocessors")
_PROGRAMS: Final = frozenset({"code-grader", "code-judge", "python"})
_PLUGIN: Final = "custom:"
_WORKSPACE: Final = ("hooks", "repos", "scripts", "command")
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
    for key in _JUDGED_PARTS:
        if key in test:
            yield from _forbidden(test[key], (key,), rules)
    if _OTHER_PARTS.isdisjoint(test):
        return
    for key in ("target", "targets", "flow", "hooks"):
        if isinstance(test.get(key), dict) or (key == "hooks" and test.get(key)):
            yield (key,), f"a {key.rstrip('s')} cannot be defined here: {_INSTEAD}"
    workspace, execution = test.get("workspace"), test.get("execution")
    if isinstance(workspace, dict):
        for key in filter(workspace.get, _WORKSPACE):
            yield ("workspace", key), f"'{key}' runs commands: {_INSTEAD}"
    if isinstance(execution, dict) and isinstance(execution.get("target"), dict):
        message = f"a target cannot be defined here, only named: {_INSTEAD}"
        yield ("execution", "target"), message


def _forbidden(part: Any, loc: Loc, rules: RowRules) -> Iterator[tuple[Loc, str]]:
    """Yield what an assertion, a turn, the execution of a test or a list of them may not hold."""
    if isinstance(part, list):
        for number, each in enumerate(part):
            written = each.get("type") if isinstance(each, dict) else None
            if not (isinstance(written, str) and written in COMPARED):
                yield from _forbidden(each, (*loc, number), rules)
    if not isinstance(part, dict):
        return
    written = part.get("type")
    kind = written.replace("_", "-").lower() if isinstance(written, str) else ""
    if "include" in part:
        yield (*loc, "include"), f"a template may hold what runs programs: {_INSTEAD}"
        return
    bare = kind.removeprefix("not-")
    is_plugin = bare.startswith(_PLUGIN) or (kind and written in rules.programs)
    if bare in _PROGRAMS or (is_plugin and written not in rules.declared):
        yield (*loc, "type"), f"'{written}' runs a program: {_INSTEAD}"
        return
    for key in filter(part.get, _RUNS):
        yield (*loc, key), f"'{key}' runs a program: {_INSTEAD}"
    for key in _NESTED:
        yield from _forbidden(part.get(key), (*loc, key), rules)


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
    read_case: Callable[..., Case | None],
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
                case = _case_of(row, read_case, rules)
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


def _case_of(row: RawTest, read_case: Callable[..., Case | None], rules: RowRules) -> Case | None:
    """Return the case of a row; None, and every mistake noted, if it is wrong."""
    value, loc, problems, marked, is_data = row
    before = problems.count
    for inner, message in forbidden_parts(value, rules) if is_data else ():
        label = f"'{value['id']}'" if isinstance(value.get("id"), str) else ""
        problems.add((*loc, *inner), message, label=label)
    return read_case(value, loc, problems, marked=marked) if problems.count == before else None


def append_case(spool: CaseSpool, case: Case, loc: Loc, problems: Problems, *, noun: str) -> None:
    """Append the case; note one that cannot be stored as JSON."""
    try:
        spool.append(case)
    except (TypeError, RecursionError) as error:
        problems.add(loc, f"{noun} '{case.id}' holds a value that JSON cannot: {error}")

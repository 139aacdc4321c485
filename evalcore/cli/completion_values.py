"""What a shell offers on Tab: suite files, runs, ids of cases. Reads little and imports less."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import EvalError

RUN_NAMES: Final = ("latest", "last", "last-pass", "main")
_SUITE_SUFFIXES: Final = (".yaml", ".yml", ".json")
_ROW_SUFFIXES: Final = (".jsonl", ".csv", ".parquet")
# A key at the top level that only suites have, or the function that makes one.
_SUITE_TEXT: Final = re.compile(
    rb"""^\s{0,4}["']?(?:tests|cases|eval|evals|suites|workflow)["']?\s*:""", re.MULTILINE
)
_PYTHON_SUITE: Final = b"define_suite"
_HEAD_BYTES: Final = 65_536
_MOST_BYTES: Final = 1 << 20
_DEEPEST, _MOST_FOLDERS, _MOST_FILES, _MOST_RUNS = 3, 200, 500, 50
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "site-packages"})


def suite_files(start: str) -> Iterator[str]:
    """Yield the suite files whose path begins so, up to three folders below it."""
    folder = start.rpartition("/")[0] + "/" if "/" in start else ""
    listed = 0
    for path in _files_below(folder):
        if path.startswith(start) and _is_suite(Path(path)):
            yield path
            listed += 1
            if listed == _MOST_FILES:
                return


def _files_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder as the user would write them, nearest first."""
    level, visited = [folder], 0
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for each in level:
            visited += 1
            if visited > _MOST_FOLDERS:
                return
            with suppress(OSError):
                for entry in sorted(os.scandir(each or "."), key=lambda entry: entry.name):
                    if entry.name.startswith(".") or entry.name in _SKIPPED:
                        continue
                    if entry.is_dir():
                        below.append(f"{each}{entry.name}/")
                    else:
                        yield f"{each}{entry.name}"
        level = below


def _is_suite(path: Path) -> bool:
    suffix = path.suffix.lower()
    if suffix in _ROW_SUFFIXES:
        return True
    # JSON that is not named as a suite mostly is something else: a report, a schema.
    if suffix == ".json" and not path.name.endswith(".eval.json"):
        return False
    if suffix not in (*_SUITE_SUFFIXES, ".py"):
        return False
    with suppress(OSError), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        return _PYTHON_SUITE in head if suffix == ".py" else bool(_SUITE_TEXT.search(head))
    return False


def run_names(store: str | None) -> Iterator[tuple[str, str]]:
    """Yield names of runs with a line about each: words first, then the newest ids of a folder."""
    for name in RUN_NAMES:
        yield name, ""
    runs: list[tuple[str, str]] = []
    for suite in _folders(_runs_folder(store)):
        runs.extend((run.name, suite.name) for run in _folders(suite))
    yield from sorted(runs, reverse=True)[:_MOST_RUNS]


def suite_names(store: str | None) -> Iterator[str]:
    """Yield the names of the suites that have runs in a store that is a folder."""
    from urllib.parse import unquote

    for folder in _folders(_runs_folder(store)):
        yield unquote(folder.name)


def _runs_folder(store: str | None) -> Path | None:
    """Return the folder of runs; None for a store elsewhere, which takes too long to ask."""
    if store is None:
        from evalcore.settings import read_settings

        store = read_settings(os.environ, Path.cwd()).store
    return None if "://" in store else Path(store) / "runs"


def _folders(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())
    except OSError:
        return []


def stores() -> Iterator[str]:
    """Yield the folders of the current one that are stores."""
    for folder in _folders(Path()):
        if (folder / "runs").is_dir():
            yield str(folder)


def case_ids(files: Iterable[Path]) -> Iterator[str]:
    """Yield the ids of the cases that stand in suite files, in their order."""
    for raw in _cases(files):
        name = raw.get("id") or raw.get("name")
        if isinstance(name, str | int):
            yield str(name)


def case_tags(files: Iterable[Path]) -> Iterator[str]:
    """Yield the tags of the cases that stand in suite files."""
    for raw in _cases(files):
        tags = raw.get("tags")
        yield from map(str, tags if isinstance(tags, list) else ())


def variant_ids(files: Iterable[Path]) -> Iterator[str]:
    """Yield the ids of the variants of suite files."""
    for document in map(_document, files):
        section = document.get("evalcore")
        listed = document.get("variants") or (
            section.get("variants") if isinstance(section, Mapping) else None
        )
        for variant in listed if isinstance(listed, list) else ():
            name = variant.get("id") if isinstance(variant, Mapping) else variant
            if isinstance(name, str):
                yield name


def _cases(files: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    for path in files:
        rows = _rows(path) if path.suffix.lower() == ".jsonl" else _listed(_document(path))
        yield from (row for row in rows if isinstance(row, Mapping))


def _listed(document: Mapping[str, Any]) -> Iterator[Any]:
    section = document.get("eval")
    owner = section if isinstance(section, Mapping) else document
    for key in ("tests", "cases", "evals"):
        if isinstance(owner.get(key), list):
            yield from owner[key]
    groups = document.get("suites")
    for group, suite in groups.items() if isinstance(groups, Mapping) else ():
        tests = suite.get("tests") if isinstance(suite, Mapping) else None
        yield from ({"id": f"{group}/{test}"} for test in tests or ())


def _rows(path: Path) -> Iterator[Any]:
    if _is_small(path):
        for line in path.read_bytes().splitlines():
            if line.strip():
                yield orjson.loads(line)


def _document(path: Path) -> Mapping[str, Any]:
    """Return a suite file as it is written; nothing of a large one."""
    if path.suffix.lower() not in _SUITE_SUFFIXES or not _is_small(path):
        return {}
    from evalcore.formats.includes import read_script_document

    with suppress(EvalError):
        raw = read_script_document(path, str(path)).document.value
        return raw if isinstance(raw, Mapping) else {}
    return {}


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _MOST_BYTES

"""Tests in an object store: `tests: s3://bucket/cases.parquet` (docs/decisions/0021)."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from evalcore.errors import EvalError, LoadError
from evalcore.formats.parts.raw_test import RawTest
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.storage.store import ObjectStore
from evalcore.trust.machine_faults import temporary_folder

SCHEME = "s3://"
ReadFile = Callable[[Path, str, Mapping[str, str], Problems], Iterator[RawTest]]


def names_objects(tests: Any) -> bool:
    """Whether tests, or cases, are named by addresses of an object store, at least in part."""
    named = [tests] if isinstance(tests, str) else tests if isinstance(tests, list) else ()
    return any(isinstance(name, str) and name.startswith(SCHEME) for name in named)


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
    read_file: ReadFile,
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
                for test in read_file(path, object_address, columns, problems):
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

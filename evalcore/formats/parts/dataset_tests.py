"""Tests in a dataset of the store: `tests: dataset:support@3` (docs/reference/datasets.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evalcore.datasets.reference import names_dataset
from evalcore.errors import EvalError
from evalcore.formats.parts.raw_test import NO_TEST, RawTest
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.suite import DatasetSource


def names_stored_cases(tests: Any) -> bool:
    """Whether tests, or cases, are named by datasets of the store, at least in part."""
    named = [tests] if isinstance(tests, str) else tests if isinstance(tests, list) else ()
    return any(map(names_dataset, named))


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

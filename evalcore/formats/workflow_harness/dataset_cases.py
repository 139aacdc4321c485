"""Cases of a workflow file in a dataset: `eval: {cases: dataset:support@3}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.datasets.reference import names_dataset
from evalcore.formats.options import LoadOptions
from evalcore.formats.rows import NO_TEST
from evalcore.formats.sources import dataset_tests, forbidden_parts
from evalcore.mistakes.problems import Problems
from evalcore.model.suite import DatasetSource

_CASES: Final = ("eval", "cases")
_OUTPUT_ONLY: Final = {"output"}


def with_dataset_cases(
    raw: dict[str, Any], options: LoadOptions, problems: Problems, versions: list[DatasetSource]
) -> dict[str, Any]:
    """Return a workflow file with the cases of the dataset that its `eval.cases` names.

    A file that names none is returned as it is. Raises `LoadError` for a dataset that is not there,
    and for cases that a workflow file cannot have. All cases are in memory, as those of a file are.
    """
    evals = raw.get("eval")
    written = evals.get("cases") if isinstance(evals, Mapping) else None
    if not isinstance(evals, Mapping) or not names_dataset(written):
        return raw
    cases: list[dict[str, Any]] = []
    rows = problems
    for test in dataset_tests(str(written), options.datasets, _CASES, problems, versions):
        rows = test.problems
        if test.value is not NO_TEST:
            cases.append(_case(test.value, rows))
    rows.raise_if_any()
    problems.raise_if_any()
    return {**raw, "eval": {**evals, "cases": cases}}


def _case(row: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Return a row as a case of a workflow file: a mapping is its inputs."""
    value = row.get("input")
    case = {"id": row["id"], "inputs": value if isinstance(value, dict) else {"input": value}}
    fixtures = row.get("fixtures") or {}
    if set(fixtures) - _OUTPUT_ONLY:
        case["fixtures"] = fixtures
    expected = row.get("expected") or {}
    for block, assertions in expected.items() if isinstance(expected, dict) else ():
        for loc, message in forbidden_parts({"assertions": assertions}):
            problems.add(("expected", block, *loc[1:]), message)
    if expected:
        case["expected"] = expected
    elif row.get("assertions"):
        message = "a workflow file takes assertions by block: {expected: {BLOCK: [...]}}"
        problems.add(("assertions",), message)
    return case

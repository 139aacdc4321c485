"""Files of assertions for the cases of a dataset, checked before any case has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalcore.checks.dialects import assertion_types
from evalcore.checks.registry import Dialect
from evalcore.errors import LoadError
from evalcore.formats.documents import Document, as_json, parse_document, read_document
from evalcore.formats.single_assertion import read_single
from evalcore.formats.sources import forbidden_parts
from evalcore.model.suite import Format
from evalcore.problems import Problems
from evalcore.wording import Loc, describe, suggest_assertion

_FORMATS = {Format.TEST_FILE: Dialect.TEST, Format.SUITE: Dialect.SUITE}


def read_assertions(path: Path) -> list[dict[str, Any]]:
    """Return the assertions of a YAML or JSON file: a list, or a mapping with `assertions`.

    Raises `LoadError` with every mistake and its line: what neither test files nor suites accept,
    and what may not stand in a row of data.
    """
    return _checked_list(read_document(path, str(path)))


def parse_assertions(text: str, name: str) -> list[dict[str, Any]]:
    """Return the assertions of a text in YAML or JSON; raise `LoadError` as `read_assertions`.

    `name` stands for the file in messages.
    """
    return _checked_list(parse_document(text.encode("utf-8", "replace"), name, is_json=False))


def _checked_list(document: Document) -> list[dict[str, Any]]:
    problems = Problems(document.file, document.locate)
    raw: Any = document.value
    loc: Loc = ()
    if isinstance(raw, Mapping) and "assertions" in raw:
        raw, loc = raw["assertions"], ("assertions",)
    if not isinstance(raw, list) or not raw:
        problems.add(loc, f"expected a list of assertions, got {describe(raw)}")
        problems.raise_if_any()
    for index, assertion in enumerate(raw):
        check_assertion(assertion, (*loc, index), problems)
    problems.raise_if_any()
    assertions: list[dict[str, Any]] = as_json(raw)
    return assertions


def check_assertion(assertion: Any, loc: Loc, problems: Problems) -> None:
    """Note what is wrong with an assertion of a case in a dataset."""
    if not isinstance(assertion, dict) or not isinstance(assertion.get("type"), str):
        problems.add(loc, f"expected a mapping with 'type', got {describe(assertion)}")
        return
    before = problems.count
    for inner, message in forbidden_parts({"assertions": [assertion]}):
        problems.add((*loc, *inner[2:]), message)
    if problems.count > before:
        return
    kind = assertion["type"]
    types = {name for dialect in _FORMATS.values() for name in assertion_types(dialect)}
    bare = kind if kind in types else kind.removeprefix("not-")
    if bare not in types:
        hint = suggest_assertion(kind, types)
        problems.add((*loc, "type"), f"unknown assertion '{kind}'.{hint}")
        return
    refusals: list[LoadError] = []
    for format_, dialect in _FORMATS.items():
        if bare not in assertion_types(dialect):
            continue
        try:
            read_single(format_, as_json(assertion), Path())
        except LoadError as error:
            refusals.append(error)
        else:
            return
    for problem in refusals[0].problems:
        problems.add(loc, f"{problem.path}: {problem.message}" if problem.path else problem.message)

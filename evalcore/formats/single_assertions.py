"""Assertions that stand alone: on the command line, and in files for the cases of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from evalcore.checks.registry import Dialect, assertion_types
from evalcore.errors import LoadError, UsageError
from evalcore.formats.assertions import AssertionReader, bare_type, type_mistake
from evalcore.formats.documents import Document, as_json, parse_document, read_document
from evalcore.formats.graders import Graders, program_assertions
from evalcore.formats.sources import forbidden_parts
from evalcore.model.assertion import Assertion
from evalcore.model.suite import Format
from evalcore.problems import Problems
from evalcore.shapes import adapter
from evalcore.wording import Loc, describe

if TYPE_CHECKING:
    from evalcore.checks.conditions import EvalAssertion


FORMATS: Final = {
    Format.WORKFLOW_HARNESS: Dialect.WORKFLOW,
    Format.TEST_FILE: Dialect.TEST,
    Format.SUITE: Dialect.SUITE,
    Format.WORKFLOW_EVALS: None,
}


def read_single(format_: str, raw: Any, folder: Path) -> Assertion:
    """Return an assertion on its own; raise `LoadError` where the format's loader would."""
    if format_ not in FORMATS:
        names = ", ".join(FORMATS)
        raise UsageError(f"no single assertions of format '{format_}'; formats: {names}")
    problems = Problems("assertion", lambda _: None)
    dialect = FORMATS[Format(format_)]
    if dialect is None:
        assertion = _read_condition(raw, problems)
    else:
        programs = program_assertions(folder) if dialect is Dialect.TEST else None
        reader = AssertionReader(Graders(folder), dialect, programs=programs)
        assertion = reader.read(raw, (), problems)
    if assertion is None or problems.count:
        raise LoadError(tuple(problems.noted))
    return assertion


def _read_condition(raw: Any, problems: Problems) -> Assertion | None:
    """Return the assertion of a saved eval; one that can never be met is blocked when evaluated."""
    from evalcore.checks.conditions import EvalAssertion

    try:
        return condition_check(adapter(EvalAssertion).validate_python(raw))
    except ValidationError as error:
        problems.add_invalid(error, raw, EvalAssertion)
        return None


def condition_check(assertion: EvalAssertion) -> Assertion:
    """Return the assertion of a saved eval as a case holds it."""
    return Assertion(
        type=assertion.condition.kind,
        check="condition",
        name=assertion.label or assertion.condition.kind,
        params=assertion.model_dump(mode="json", by_alias=True),
    )


def read_assertions(path: Path) -> list[dict[str, Any]]:
    """Return the assertions for a dataset's cases, of a file: a list, or under `assertions`.

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
    types = {**assertion_types(Dialect.SUITE), **assertion_types(Dialect.TEST)}
    kind = assertion["type"]
    bare = kind if kind in types else bare_type(kind)
    if bare not in types:
        problems.add((*loc, "type"), type_mistake(assertion, list(types)))
        return
    refused: LoadError | None = None
    for format_, dialect in ((Format.SUITE, Dialect.SUITE), (Format.TEST_FILE, Dialect.TEST)):
        try:
            if bare in assertion_types(dialect):
                read_single(format_, as_json(assertion), Path())
                return
        except LoadError as error:
            refused = error
    for problem in refused.problems if refused is not None else ():
        problems.add(loc, f"{problem.path}: {problem.message}" if problem.path else problem.message)

"""Read the blocks, souls and sections of a workflow file into their classes.

A block that runs is checked whole. A file whose cases all have fixtures is held to its shape only:
the known keys and the kinds of their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from evalcore.problems import Problems
from evalcore.shapes import adapter, is_model, member_of, strip_wrappers
from evalcore.wording import Loc, describe, suggest
from evalcore.workflow.definition import Block, WorkflowDefinition, WorkflowPart, WorkflowSections
from evalcore.workflow.reading import BLOCK_TYPES, block_class, read_definition

P = TypeVar("P", bound=WorkflowPart)
# Mistakes in what a value is, not in its kind.
_VALUE_ERRORS: Final = frozenset(
    {
        "missing",
        "too_short",
        "string_too_short",
        "string_pattern_mismatch",
        "greater_than_equal",
        "less_than_equal",
    }
)


def read_part(
    shape: type[P], raw: object, loc: Loc, problems: Problems, *, runs: bool = True
) -> P | None:
    """Return a part of the file; note what is wrong with it, of one that never runs its shape."""
    try:
        part: P = adapter(shape).validate_python(raw)
    except ValidationError as error:
        wrong = error if runs else _of_shape(error, shape)
        if wrong is not None:
            problems.add_invalid(wrong, raw, shape, loc)
        return None
    return part


def _of_shape(error: ValidationError, shape: Any) -> ValidationError | None:
    """Return the errors in the shape of a part itself, not in values or in parts below it."""
    errors: list[Any] = [
        {key: each[key] for key in ("type", "loc", "input", "ctx") if key in each}
        for each in error.errors(include_url=False)
        if not _is_of_value(each) and not _is_below(shape, each["loc"])
    ]
    return ValidationError.from_exception_data(error.title, errors) if errors else None


def _is_of_value(error: Mapping[str, Any]) -> bool:
    """Whether the value is of the right kind, and only another one is expected."""
    if error["type"] == "literal_error":
        return isinstance(error["input"], str)
    return error["type"] in _VALUE_ERRORS


def _is_below(shape: Any, loc: tuple[int | str, ...]) -> bool:
    """Whether a path leads into a part below the shape, or into a form of it."""
    for part in loc[:-1]:
        shape = member_of(shape, part)
        if is_model(strip_wrappers(shape)):
            return True
    return any(isinstance(part, str) and part.startswith("<") for part in loc)


def read_block(raw: object, loc: Loc, problems: Problems, *, runs: bool = True) -> Block | None:
    """Return a block as the class of its type."""
    if not isinstance(raw, dict):
        problems.add(loc, f"a block is a mapping with 'type', got {describe(raw)}")
        return None
    kind = raw.get("type")
    if isinstance(kind, str) and kind in BLOCK_TYPES:
        return read_part(block_class(kind), raw, loc, problems, runs=runs)
    message = "is required" if "type" not in raw else f"expected text, got {describe(kind)}"
    if isinstance(kind, str):
        message = f"unknown type '{kind}'.{suggest(kind, BLOCK_TYPES)}"
    problems.add((*loc, "type"), message)
    return None


def read_workflow(
    raw: Mapping[str, Any], problems: Problems, prefix: Loc = ()
) -> WorkflowDefinition | None:
    """Return a workflow that has to run; None if something is wrong, which is noted."""
    before = problems.count
    written = raw.get("blocks")
    for name, block in (written if isinstance(written, dict) else {}).items():
        read_block(block, (*prefix, "blocks", name), problems)
    rest = {key: value for key, value in raw.items() if key != "blocks"}
    read_part(WorkflowSections, rest, prefix, problems)
    if problems.count > before or not raw.get("blocks"):
        return None
    return read_definition(raw)

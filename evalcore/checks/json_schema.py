"""JSON Schema: the first thing in a value that a schema does not allow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from evalcore.mistakes.foreign_text import describe_error, one_line, quote
from evalcore.patterns.bounded import compile_python
from evalcore.patterns.errors import PatternError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


class SchemaProblem(ValueError):  # noqa: N818 - it is the schema's, not the value's
    """The schema is not valid, names another document, or cannot be applied to the value."""


def first_mistake(value: Any, schema: Any, regex_timeout_s: float) -> str | None:
    """Return the most telling mistake as one line (`$.path: message`); None if the value conforms.

    The draft is the one that `$schema` names, else 2020-12. Raises `SchemaProblem`; a `$ref` to
    another document is one, nothing is ever fetched.
    """
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    validator = _validator(json.dumps(schema), regex_timeout_s)
    try:
        mistake = best_match(validator.iter_errors(value))
        return None if mistake is None else one_line(f"{mistake.json_path}: {mistake.message}")
    except Unresolvable as error:
        raise SchemaProblem(
            f"the schema refers to {quote(str(error.ref))}, which is not in it; "
            "schemas are not fetched"
        ) from None
    except PatternError as error:
        raise SchemaProblem(f"a pattern of the schema: {error}") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise SchemaProblem(f"the schema cannot be applied: {describe_error(error)}") from None


def check_schema(schema: Any, regex_timeout_s: float) -> None:
    """Raise `SchemaProblem` if the schema itself is not valid."""
    _validator(json.dumps(schema), regex_timeout_s)


def has_keywords(schema: Mapping[str, Any]) -> bool:
    """Whether at least one key of the schema is a keyword of JSON Schema (draft 2020-12)."""
    from jsonschema import Draft202012Validator

    annotations = {"$schema", "$id", "$defs", "definitions", "title", "description", "default"}
    return not annotations.union(Draft202012Validator.VALIDATORS).isdisjoint(schema)


@lru_cache(maxsize=256)
def _validator(schema_text: str, regex_timeout_s: float) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, ValidationError
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    schema = json.loads(schema_text)
    if not isinstance(schema, dict | bool):
        raise SchemaProblem("a JSON Schema is an object, true or false")
    draft: Any = validator_for(schema, default=Draft202012Validator)
    try:
        draft.check_schema(schema)
    except SchemaError as error:
        raise SchemaProblem(
            one_line(f"invalid JSON Schema: {error.json_path}: {error.message}")
        ) from None

    def pattern(_: Any, expression: str, value: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(value, str) and not compile_python(expression).is_found_in(
            value, regex_timeout_s
        ):
            yield ValidationError(f"{quote(value)} does not match {quote(expression)}")

    # jsonschema's own check of `pattern` cannot be interrupted.
    bounded: Any = extend(draft, {"pattern": pattern})  # type: ignore[no-untyped-call]
    validator: Validator = bounded(schema, registry=Registry())
    return validator

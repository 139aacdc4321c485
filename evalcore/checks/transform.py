"""What a check is given instead of the output: `json_path:<expression>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalcore.checks import strict_json
from evalcore.checks.strict_json import NotJsonError
from evalcore.mistakes.foreign_text import quote, value_text
from evalcore.model.json_path import compile_json_path

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath

_JSON_PATH = "json_path:"


class TransformError(ValueError):
    """The transform gives no text; the message names it."""


def compile_transform(transform: str) -> JSONPath | CompoundJSONPath:
    """Return the JSONPath that a transform names; raise `TransformError` if it names none."""
    from jsonpath.exceptions import JSONPathError

    if not transform.startswith(_JSON_PATH):
        raise TransformError(
            f"unknown transform {quote(transform)} (valid: json_path:<expression>)"
        )
    expression = transform.removeprefix(_JSON_PATH).strip()
    if not expression:
        raise TransformError(f"transform {quote(transform)} has no expression")
    try:
        return compile_json_path(expression)
    except JSONPathError as error:
        raise _malformed(transform, error) from None


def apply_transform(transform: str, output: str) -> str:
    """Return the first match of the JSONPath in the output, other values than text as JSON.

    Raises `TransformError` where the transform is unknown or malformed, where the output is not
    JSON, and where nothing matches.
    """
    from jsonpath.exceptions import JSONPathError

    path = compile_transform(transform)
    try:
        match = path.match(strict_json.parse(output))
    except NotJsonError as error:
        raise TransformError(f"transform {quote(transform)}: the output {error}") from None
    except JSONPathError as error:
        raise _malformed(transform, error) from None
    except RecursionError:
        raise TransformError(f"transform {quote(transform)}: nested too deeply") from None
    if match is None:
        raise TransformError(f"transform {quote(transform)} matches nothing in the output")
    return value_text(match.value)


def _malformed(transform: str, error: Exception) -> TransformError:
    reason = str(error).partition("\n")[0]  # the lines below draw the expression again
    return TransformError(f"malformed transform {quote(transform)}: {reason}")

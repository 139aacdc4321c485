"""JSONPath as RFC 9535 has it, and steps as other programs write them (`$."a b"`, `$.0`)."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment

_NAME: Final = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
# The time to look for steps grows with the square of the length.
_LONGEST: Final = 1_000
# A selection in brackets is taken as a whole; a step is quoted, a number, or brackets after a dot.
_PART: Final = re.compile(
    rf"(?P<brackets>\[(?:{_NAME}|[^\]\"'])*\])"
    rf"|(?P<dots>\.{{1,2}})(?:(?P<name>{_NAME})|(?P<number>\d+)(?![\w-])|(?=\[))",
    re.DOTALL,
)
_QUOTED: Final = re.compile(_NAME, re.DOTALL)


@lru_cache(maxsize=512)
def compile_json_path(expression: str) -> JSONPath | CompoundJSONPath:
    """Return the compiled expression; raise `jsonpath.JSONPathError` if it is none.

    A quoted step is the name of a member, and so is a number after a dot.
    """
    from jsonpath.exceptions import JSONPathSyntaxError

    environment = _environment()
    try:
        return environment.compile(expression)
    except JSONPathSyntaxError:
        standard = _standard_form(expression) if len(expression) <= _LONGEST else expression
        if standard == expression:
            raise
        return environment.compile(standard)


def _standard_form(expression: str) -> str:
    """Return the expression with quoted and numeric steps in brackets."""

    def bracketed(match: re.Match[str]) -> str:
        if match["dots"] is None:
            return match[0]
        prefix = ".." if match["dots"] == ".." else ""
        if match["name"] is not None:
            return f"{prefix}[{match['name']}]"
        return f"{prefix}['{match['number']}']" if match["number"] is not None else prefix

    begins_with_name = _QUOTED.match(expression) is not None
    return _PART.sub(bracketed, f"$.{expression}" if begins_with_name else expression)


@cache
def _environment() -> JSONPathEnvironment:
    from jsonpath import JSONPathEnvironment

    class Environment(JSONPathEnvironment):
        def getitem(self, obj: Any, key: Any) -> Any:
            # A slice selects elements of an array, and nothing in a string.
            if isinstance(key, slice) and isinstance(obj, str):
                return ()
            return super().getitem(obj, key)

    return Environment()

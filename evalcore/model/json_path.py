"""JSONPath as RFC 9535 has it."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment


@lru_cache(maxsize=512)
def compile_json_path(expression: str) -> JSONPath | CompoundJSONPath:
    """Return the compiled expression; raise `jsonpath.JSONPathError` if it is none."""
    return _environment().compile(expression)


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

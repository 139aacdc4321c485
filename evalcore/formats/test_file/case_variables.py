"""`vars` of a test: values for `{{ name }}` in what it asks and expects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

# `${{ NAME }}` is a variable of the environment.
_REFERENCE: Final = re.compile(r"(?<!\$)\{\{\s*([A-Za-z_][A-Za-z0-9_.]*)\s*\}\}")
_FILLED: Final = ("criteria", "expected_outcome", "input", "input_files", "expected_output")
_FILLED_IN_TURNS: Final = ("input", "expected_output")


class CaseVariables:
    """Fills references to the variables of one test, and keeps those that nothing names."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.names = frozenset(values)
        self.unused = dict.fromkeys(values)

    def fill_test(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Return a test with the references in its own texts replaced."""
        filled = {key: self.fill(raw[key]) for key in _FILLED if key in raw}
        turns = raw.get("turns")
        if isinstance(turns, list):
            filled["turns"] = [self._turn(turn) for turn in turns]
        return {**raw, **filled}

    def _turn(self, turn: Any) -> Any:
        if not isinstance(turn, dict):
            return turn
        return {**turn, **{key: self.fill(turn[key]) for key in _FILLED_IN_TURNS if key in turn}}

    def fill(self, value: Any) -> Any:
        """Return a value with the references in its texts replaced.

        A text that is one reference becomes the value itself. What no variable has stays: it may
        belong to another template language.
        """
        if isinstance(value, str):
            whole = _REFERENCE.fullmatch(value)
            if whole is not None:
                return self._value(whole[1], value)
            return _REFERENCE.sub(lambda match: _text(self._value(match[1], match[0])), value)
        if isinstance(value, dict):
            return {key: self.fill(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.fill(inner) for inner in value]
        return value

    def _value(self, path: str, default: str) -> Any:
        value: Any = self._values
        for name in path.split("."):
            if not isinstance(value, Mapping) or name not in value:
                return default
            value = value[name]
        self.unused.pop(path.partition(".")[0], None)
        return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

"""`str.format` and `str.format_map`: fields reach values by position, key and index only."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.lookup import attribute, item
from evalcore.expressions.texts import formatted
from evalcore.expressions.values import EvaluationFailure

_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>[^\[\]]+)\]")
_PARSE: Final = string.Formatter().parse


def fill(template: str, values: Sequence[Any], by_name: Mapping[str, Any], budget: Budget) -> str:
    """Return the text with its `{…}` fields filled, as `str.format` does."""
    return _Filling(values, by_name, budget).fill(template, nested=False)


class _Filling:
    """One call of `format`: its values, and how many fields without a number it has met."""

    def __init__(self, values: Sequence[Any], by_name: Mapping[str, Any], budget: Budget) -> None:
        self._values = values
        self._by_name = by_name
        self._budget = budget
        self._next = 0
        self._numbered = False

    def fill(self, template: str, *, nested: bool) -> str:
        written: list[str] = []
        size = 0
        for literal, field, spec, conversion in _PARSE(template):
            written.append(literal)
            if field is not None:
                self._budget.charge(1)
                value = self._value(field)
                how = self._spec(spec or "", nested=nested)
                written.append(formatted(value, conversion or None, how, self._budget))
                size += len(written[-1])
            size += len(literal)
            if size > self._budget.bytes:
                self._budget.room(size)
        self._budget.room(size)
        return "".join(written)

    def _spec(self, spec: str, *, nested: bool) -> str:
        if "{" not in spec and "}" not in spec:
            return spec
        if nested:
            raise EvaluationFailure("ValueError", "fields are nested too deeply")
        return self.fill(spec, nested=True)

    def _value(self, field: str) -> Any:
        first = re.match(r"[^.\[]*", field)
        name = first[0] if first else ""
        value = self._first(name)
        position = len(name)
        while position < len(field):
            step = _STEP.match(field, position)
            if step is None:
                raise EvaluationFailure("ValueError", f"the field {{{field}}} cannot be read")
            position = step.end()
            if step["name"] is not None:
                value = attribute(value, step["name"])
            else:
                index = step["index"]
                value = item(self._budget, value, int(index) if _is_number(index) else index)
        return value

    def _first(self, name: str) -> Any:
        if not name:
            if self._numbered:
                raise EvaluationFailure(
                    "ValueError", "fields with and without a number cannot be mixed"
                )
            self._next += 1
            return self._at(self._next - 1)
        if _is_number(name):
            if self._next:
                raise EvaluationFailure(
                    "ValueError", "fields with and without a number cannot be mixed"
                )
            self._numbered = True
            return self._at(int(name))
        if name.startswith("_") and name != "_":
            raise EvaluationFailure(
                "AttributeError", f"names beginning with '_' are not available: {name}"
            )
        if name not in self._by_name:
            raise EvaluationFailure("KeyError", f"no key {name!r}")
        return self._by_name[name]

    def _at(self, index: int) -> Any:
        if index >= len(self._values):
            raise EvaluationFailure("IndexError", f"format() has no value for field {index}")
        return self._values[index]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10

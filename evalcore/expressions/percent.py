"""`text % values`."""

from __future__ import annotations

import re
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.texts import check_widths, to_repr, to_text
from evalcore.expressions.values import NUMBERS, EvaluationFailure, describe, plain

_FIELD: Final = re.compile(
    r"%(?:\((?P<key>[^()]*)\))?(?P<shape>[#0\- +]*(?:[0-9]+)?(?:\.[0-9]*)?)[hlL]?(?P<kind>.)?",
    re.DOTALL,
)
_NUMERIC: Final = "diouxXeEfFgG"


def percent(template: str, values: Any, budget: Budget) -> str:
    """Return a text with its `%` fields filled; a field cannot take its width from the values."""
    arguments = _Arguments(values)
    written: list[str] = []
    size = position = 0
    for field in _FIELD.finditer(template):
        written.append(template[position : field.start()])
        position = field.end()
        written.append("%" if field["kind"] == "%" else _field(field, arguments, budget))
        size += len(written[-1]) + len(written[-2])
        budget.charge(1)
        # What is written already counts each time; the whole once more when it is joined.
        if size > budget.bytes:
            budget.room(size)
    written.append(template[position:])
    arguments.finish()
    budget.room(size + len(written[-1]))
    return "".join(written)


class _Arguments:
    """The values on the right of `%`, in their order or by their keys."""

    def __init__(self, values: Any) -> None:
        values = plain(values)
        self._values = values
        self._rest = list(values) if type(values) is tuple else [values]
        # As in Python, where anything that can be indexed may have been meant as a mapping.
        self._may_remain = type(values) in (dict, list)

    def take(self, key: str | None) -> Any:
        if key is not None:
            if type(self._values) is not dict:
                raise EvaluationFailure("TypeError", "format requires a mapping")
            self._may_remain, self._rest = True, []
            if key not in self._values:
                raise EvaluationFailure("KeyError", f"no key {key!r}")
            return self._values[key]
        if not self._rest:
            raise EvaluationFailure("TypeError", "not enough arguments for format string")
        return self._rest.pop(0)

    def finish(self) -> None:
        if self._rest and not self._may_remain:
            raise EvaluationFailure(
                "TypeError", "not all arguments converted during string formatting"
            )


def _field(field: re.Match[str], arguments: _Arguments, budget: Budget) -> str:
    kind, shape = field["kind"], field["shape"]
    check_widths(shape, budget)
    if kind == "*":
        raise EvaluationFailure("ValueError", "a width taken from the values is not available here")
    if kind is None:
        raise EvaluationFailure("ValueError", "incomplete format")
    value = plain(arguments.take(field["key"]))
    if kind in "sra":
        text = (
            to_text(value, budget) if kind == "s" else to_repr(value, budget, to_ascii=kind == "a")
        )
        return f"%{shape}s" % (text,)
    if kind == "c" and type(value) in (str, int):
        return f"%{shape}c" % (value,)
    if kind not in _NUMERIC:
        raise EvaluationFailure("ValueError", f"unsupported format character {kind!r}")
    if type(value) not in NUMBERS:
        raise EvaluationFailure("TypeError", f"%{kind} takes a number, not {describe(value)}")
    return f"%{shape}{kind}" % (value,)

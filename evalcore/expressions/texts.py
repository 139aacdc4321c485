"""Values as text: `str()`, the parts of a template, format specifications of f-strings."""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.values import (
    NUMBERS,
    SCALARS,
    SETS,
    VIEWS,
    EvaluationFailure,
    Lazy,
    describe,
    in_order,
    plain,
    walk,
)

_COLLECTIONS: Final = SETS | {list, tuple, dict}
_LONGEST_SPEC: Final = 100
_DIGITS: Final = re.compile(r"[0-9]+")
# The C library takes a width, as in `%1000000d`.
_DATE_SPEC: Final = re.compile(r"(?:[^%]|%[A-Za-z%])*")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+(?=>)")
# The most that an escape in a `repr` takes for one character.
_ESCAPED, _ESCAPED_WIDE = 4, 10


def to_text(value: Any, budget: Budget) -> str:
    """Return `str(value)`."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind in SCALARS:
        return str(value)
    if kind is range:
        return str(value)
    if kind in _COLLECTIONS or kind in VIEWS or kind is Lazy:
        return to_repr(value, budget)
    budget.room(walk(value, budget)[1])
    text = without_address(str(value))
    budget.room(len(text))
    return str.__getitem__(text, slice(None))


def without_address(text: str) -> str:
    """Return the text of an object without the address in memory, which differs in every run."""
    return _ADDRESS.sub("", text)


def _written(value: Any) -> str:
    """Return `repr(value)`, the members of sets in their order; the value is known to be flat."""
    kind = type(value)
    if kind is Lazy:
        raise EvaluationFailure("TypeError", "a generator has no text; make a list of it: list(…)")
    if kind in VIEWS:
        return f"{kind.__name__}({_written(list(value))})"
    if kind not in _COLLECTIONS:
        return repr(value) if kind in SCALARS else without_address(repr(value))
    if kind is dict:
        pairs = (f"{_written(key)}: {_written(part)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    parts = ", ".join(map(_written, in_order(value) if kind in SETS else value))
    if kind is list:
        return f"[{parts}]"
    if kind is tuple:
        return f"({parts},)" if len(value) == 1 else f"({parts})"
    if not value:
        return f"{kind.__name__}()"
    return f"{{{parts}}}" if kind is set else f"frozenset({{{parts}}})"


def to_repr(value: Any, budget: Budget, *, to_ascii: bool = False) -> str:
    """Return `repr(value)`, or `ascii(value)`."""
    if isinstance(value, str):
        budget.room(len(value) * (_ESCAPED if value.isascii() else _ESCAPED_WIDE))
    elif type(value) is not range:
        budget.room(walk(value, budget)[1])
    text = _written(value)
    if to_ascii:
        text = text.encode("ascii", "backslashreplace").decode("ascii")
    budget.room(len(text))
    return str.__getitem__(text, slice(None))


def formatted(value: Any, conversion: str | None, spec: str, budget: Budget) -> str:
    """Return a value as a field of an f-string or of `str.format` writes it."""
    if conversion in ("r", "a"):
        value = to_repr(value, budget, to_ascii=conversion == "a")
    elif conversion == "s":
        value = to_text(value, budget)
    if not spec:
        return to_text(value, budget)
    if len(spec) > _LONGEST_SPEC:
        raise EvaluationFailure(
            "ValueError", f"a format specification is longer than {_LONGEST_SPEC}"
        )
    value = plain(value)
    kind = type(value)
    if kind in NUMBERS or kind is str:
        check_widths(spec, budget)
        budget.room(len(value) if kind is str else 0)
        return format(value, spec)
    if kind in (datetime.date, datetime.datetime, datetime.time):
        if _DATE_SPEC.fullmatch(spec) is None:
            raise EvaluationFailure(
                "ValueError", "a format specification of a date takes no widths"
            )
        return format(value, spec)
    raise EvaluationFailure(
        "TypeError", f"a format specification does not apply to {describe(value)}"
    )


def check_widths(spec: str, budget: Budget) -> None:
    """Make room for the widths and precisions that stand in a format specification."""
    for digits in _DIGITS.findall(spec):
        budget.room(int(digits))

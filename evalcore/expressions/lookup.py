"""`d.key`, `d['key']`, `xs[0]`, `xs[1:2]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from evalcore.expressions.budget import Budget
from evalcore.expressions.values import EvaluationFailure, base_of, check_key, describe
from evalcore.wording import nearest

_MOST_NAMES = 1000


def attribute(value: Any, name: str) -> Any:
    """Return the value of a mapping's key; nothing else has attributes."""
    if name.startswith("_"):
        raise EvaluationFailure(
            "AttributeError", f"attributes beginning with '_' are not available: {name}"
        )
    if not isinstance(value, Mapping):
        raise EvaluationFailure(
            "AttributeError",
            f"{describe(value)} has no attribute {name!r} here (mappings have their keys; "
            "methods must be called)",
        )
    try:
        return value[name]
    except KeyError:
        raise EvaluationFailure("KeyError", f"no key {name!r}{suggestion(name, value)}") from None


def suggestion(name: str, names: Iterable[Any]) -> str:
    """Return "; did you mean 'x'?" for the name nearest to this one, or nothing."""
    names = [each for each in islice(names, _MOST_NAMES) if isinstance(each, str)]
    near = nearest(name, [each for each in names if len(each) < 100])
    return f"; did you mean {near!r}?" if near else ""


def item(budget: Budget, value: Any, index: Any) -> Any:
    """Return an element of a mapping, list, tuple, text or range, or a slice of the last four."""
    kind = type(value)
    if kind is dict or isinstance(value, Mapping):
        check_key(index, budget)
        try:
            return value[index]
        except KeyError:
            raise EvaluationFailure("KeyError", f"no key {_excerpt(index)}") from None
    if kind in (list, tuple, str, range):
        base: Any = kind
    else:
        base = base_of(value)
        if base not in (str, list, tuple):
            raise EvaluationFailure("TypeError", f"{describe(value)} cannot be indexed")
    if isinstance(index, slice):
        for bound in (index.start, index.stop, index.step):
            if bound is not None and type(bound) not in (int, bool):
                raise EvaluationFailure(
                    "TypeError", f"a slice's bounds are integers, not {describe(bound)}"
                )
        if base is not range:
            length = len(range(*index.indices(base.__len__(value))))
            budget.room(length if base is str else 8 * length)
    elif not isinstance(index, int):
        raise EvaluationFailure(
            "TypeError", f"{describe(value)} has indices, not {describe(index)}"
        )
    return base.__getitem__(value, index)


def _excerpt(index: Any) -> str:
    return repr(index) if type(index) in (str, int, float, bool) else describe(index)

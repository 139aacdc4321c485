"""The methods of lists, tuples, mappings, sets and floats.

Those that change a collection do so: a list of the test's data is the test's own copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.functions import make_dict, make_set, sort
from evalcore.expressions.operators import charge_comparing, contains, equal
from evalcore.expressions.values import check_key, check_stored, in_order, take

Method = Callable[..., Any]


def _append(budget: Budget, values: list[Any], value: Any) -> None:
    budget.room(8)
    check_stored(value, values, budget)
    list.append(values, value)


def _extend(budget: Budget, values: list[Any], more: Any) -> None:
    added = take(more, budget)
    check_stored(added, values, budget)
    budget.room(8 * (len(values) + len(added)))
    list.extend(values, added)


def _insert(budget: Budget, values: list[Any], index: int, value: Any) -> None:
    budget.room(8)
    budget.charge(len(values) >> 10)
    check_stored(value, values, budget)
    list.insert(values, index, value)


def _pop(budget: Budget, values: list[Any], index: int = -1) -> Any:
    budget.charge(len(values) >> 10)
    return list.pop(values, index)


def _remove(budget: Budget, values: list[Any], value: Any) -> None:
    contains(budget, value, values)
    list.remove(values, value)


def _clear(_: Budget, values: Any) -> None:
    values.clear()


def _copy(budget: Budget, values: Any) -> Any:
    budget.room(8 * len(values))
    return values.copy()


def _reverse(budget: Budget, values: list[Any]) -> None:
    budget.charge(len(values) >> 5)
    list.reverse(values)


def _sort(budget: Budget, values: list[Any], *, key: Any = None, reverse: Any = False) -> None:
    list.__setitem__(
        values, slice(None), sort(budget, list.copy(values), key, reverse=bool(reverse))
    )


def _count(budget: Budget, values: Any, value: Any) -> int:
    charge_comparing(budget, value, len(values))
    return sum(1 for each in tuple(values) if value is each or equal(budget, each, value))


def _index(budget: Budget, values: Any, value: Any, *bounds: int) -> int:
    contains(budget, value, values)
    base = tuple if isinstance(values, tuple) else list
    return base.index(values, value, *bounds)


def _get(budget: Budget, mapping: Mapping[Any, Any], key: Any, default: Any = None) -> Any:
    check_key(key, budget)
    return (
        dict.get(mapping, key, default) if isinstance(mapping, dict) else mapping.get(key, default)
    )


def _keys(_: Budget, mapping: Mapping[Any, Any]) -> Any:
    return dict.keys(mapping) if isinstance(mapping, dict) else list(mapping.keys())


def _values(_: Budget, mapping: Mapping[Any, Any]) -> Any:
    return dict.values(mapping) if isinstance(mapping, dict) else list(mapping.values())


def _items(_: Budget, mapping: Mapping[Any, Any]) -> Any:
    return dict.items(mapping) if isinstance(mapping, dict) else list(mapping.items())


def _pop_key(budget: Budget, mapping: dict[Any, Any], key: Any, *default: Any) -> Any:
    check_key(key, budget)
    return dict.pop(mapping, key, *default)


def _pop_item(_: Budget, mapping: dict[Any, Any]) -> Any:
    return dict.popitem(mapping)


def _set_default(budget: Budget, mapping: dict[Any, Any], key: Any, default: Any = None) -> Any:
    check_key(key, budget)
    budget.room(16)
    check_stored(default, mapping, budget)
    return dict.setdefault(mapping, key, default)


def _update(budget: Budget, mapping: dict[Any, Any], /, *more: Any, **by_name: Any) -> None:
    added = make_dict(budget, *more, **by_name)
    check_stored(added, mapping, budget)
    dict.update(mapping, added)
    budget.room(8 * len(mapping))


def _set_of(budget: Budget, values: Any) -> set[Any]:
    if isinstance(values, (set, frozenset)):
        budget.charge(len(values))
        return set(values)
    return make_set(budget, values)


def _combining(name: str) -> Method:
    """Return a method that makes a new set of this one and operands."""
    function = getattr(set, name)

    def run(budget: Budget, values: Any, *operands: Any) -> Any:
        budget.room(8 * len(values))
        result = set(values)
        for operand in operands:
            result = function(result, _set_of(budget, operand))
            budget.room(8 * len(result))
        return result

    return run


def _comparing(name: str) -> Method:
    function = getattr(set, name)

    def run(budget: Budget, values: Any, other: Any) -> Any:
        return function(_set_of(budget, values), _set_of(budget, other))

    return run


def _changing(name: str) -> Method:
    """Return a method that adds others to a set or takes them from it."""
    function = getattr(set, name)

    def run(budget: Budget, values: set[Any], *operands: Any) -> None:
        for operand in operands:
            function(values, _set_of(budget, operand))
            budget.room(8 * len(values))

    return run


def _with_element(name: str) -> Method:
    function = getattr(set, name)

    def run(budget: Budget, values: set[Any], value: Any) -> None:
        check_key(value, budget)
        budget.room(8)
        function(values, value)

    return run


def _pop_any(budget: Budget, values: set[Any]) -> Any:
    budget.charge(len(values))
    if not values:
        return values.pop()  # Python's own error
    first = in_order(values, budget)[0]
    values.remove(first)
    return first


_READING_SETS: Final[Mapping[str, Method]] = {
    **{
        name: _combining(name)
        for name in ("difference", "intersection", "union", "symmetric_difference")
    },
    **{name: _comparing(name) for name in ("isdisjoint", "issubset", "issuperset")},
    "copy": _copy,
}
_READING_MAPPINGS: Final[Mapping[str, Method]] = {
    "get": _get,
    "items": _items,
    "keys": _keys,
    "values": _values,
}

LIST_METHODS: Final[Mapping[str, Method]] = {
    "append": _append,
    "clear": _clear,
    "copy": _copy,
    "count": _count,
    "extend": _extend,
    "index": _index,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "reverse": _reverse,
    "sort": _sort,
}
TUPLE_METHODS: Final[Mapping[str, Method]] = {"count": _count, "index": _index}
DICT_METHODS: Final[Mapping[str, Method]] = {
    **_READING_MAPPINGS,
    "clear": _clear,
    "copy": _copy,
    "pop": _pop_key,
    "popitem": _pop_item,
    "setdefault": _set_default,
    "update": _update,
}
MAPPING_METHODS: Final = _READING_MAPPINGS
SET_METHODS: Final[Mapping[str, Method]] = {
    **_READING_SETS,
    **{name: _changing(name) for name in ("difference_update", "intersection_update", "update")},
    **{name: _with_element(name) for name in ("add", "discard", "remove")},
    "clear": _clear,
    "pop": _pop_any,
}
FROZEN_SET_METHODS: Final = _READING_SETS
VIEW_METHODS: Final[Mapping[str, Method]] = {"isdisjoint": _comparing("isdisjoint")}
FLOAT_METHODS: Final[Mapping[str, Method]] = {
    "is_integer": lambda _, value: float.is_integer(value),
}

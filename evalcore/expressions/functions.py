"""The functions that an expression can call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.data_functions import as_yaml, get, log, parse_json, print_json
from evalcore.expressions.operators import COMPARING, add, power
from evalcore.expressions.texts import to_repr, to_text
from evalcore.expressions.values import (
    LARGEST_BITS,
    NUMBERS,
    SCALARS,
    EvaluationFailure,
    Lazy,
    check_keys,
    describe,
    iterate,
    length_of,
    plain,
    take,
    walk,
)

Function = Callable[..., Any]
# Texts and rounding of larger numbers take quadratic time.
_MOST_DIGITS: Final = 3_000
_CHUNK: Final = 256
_MISSING: Final = object()
_LESS: Final = COMPARING["Lt"]


class Callback:
    """A function of the expression's own text; the only thing that is ever called back."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call


def called(value: Any) -> Callable[..., Any]:
    """Return the function of a callback; raise `EvaluationFailure` for any other value."""
    if type(value) is not Callback:
        raise EvaluationFailure("TypeError", f"a function is wanted, not {describe(value)}")
    return value.call


def number(value: Any, name: str) -> Any:
    """Return the value as a builtin number; raise `EvaluationFailure` where it is none."""
    value = plain(value)
    if type(value) not in NUMBERS:
        raise EvaluationFailure("TypeError", f"{name}() takes a number, not {describe(value)}")
    return value


def _abs(_: Budget, value: Any) -> Any:
    return abs(number(value, "abs"))


def _all(budget: Budget, values: Any) -> bool:
    return all(_walked(values, budget))


def _any(budget: Budget, values: Any) -> bool:
    return any(_walked(values, budget))


def _walked(values: Any, budget: Budget) -> Iterator[Any]:
    """Iterate with a step for each value; a lazy one takes them itself."""
    if type(values) is Lazy:
        return values
    if type(values) in (list, tuple, set, str, dict):
        budget.charge(len(values))
        return iter(values)
    return _counted(iterate(values, budget), budget)


def _counted(values: Iterator[Any], budget: Budget) -> Iterator[Any]:
    for value in values:
        budget.charge(1)
        yield value


def _bool(_: Budget, value: Any = False) -> bool:
    return bool(value)


def _chr(_: Budget, value: Any) -> str:
    return chr(number(value, "chr"))


def _whole(value: Any, name: str) -> int:
    value = plain(value)
    if type(value) not in (int, bool):
        raise EvaluationFailure("TypeError", f"{name}() takes an integer, not {describe(value)}")
    return int(value)


def _hex(_: Budget, value: Any) -> str:
    return hex(_whole(value, "hex"))


def _oct(_: Budget, value: Any) -> str:
    return oct(_whole(value, "oct"))


def _repr(budget: Budget, value: Any) -> str:
    return to_repr(value, budget)


def _ord(_: Budget, value: Any) -> int:
    return ord(plain(value))


def make_dict(budget: Budget, source: Any = (), /, **by_name: Any) -> dict[Any, Any]:
    """Return a mapping of a mapping or of pairs, and of names."""
    mapping: dict[Any, Any] = {}
    if isinstance(source, Mapping):
        budget.room(8 * len(source))
        budget.charge(len(source))
        mapping.update(source)
    else:
        for pair in _walked(source, budget):
            two = take(pair, budget)
            if len(two) != 2:
                raise EvaluationFailure("ValueError", f"dict() takes pairs, not {len(two)} values")
            check_keys(two[:1], budget)
            mapping[two[0]] = two[1]
    mapping.update(by_name)
    budget.room(8 * len(mapping))
    return mapping


def make_set(budget: Budget, values: Any = ()) -> set[Any]:
    """Return a set; in small portions, as keys that collide take quadratic time."""
    members = take(values, budget)
    check_keys(members, budget)
    result: set[Any] = set()
    for start in range(0, len(members), _CHUNK):
        result.update(members[start : start + _CHUNK])
        budget.charge(_CHUNK)
    return result


def _divmod(budget: Budget, left: Any, right: Any) -> Any:
    budget.charge(1)
    return divmod(number(left, "divmod"), number(right, "divmod"))


def _enumerate(budget: Budget, values: Any, start: Any = 0) -> Lazy:
    return Lazy(enumerate(_counted_or_lazy(values, budget), number(start, "enumerate")), values)


def _counted_or_lazy(values: Any, budget: Budget) -> Iterator[Any]:
    return values if type(values) is Lazy else _counted(iterate(values, budget), budget)


def _filter(budget: Budget, function: Any, values: Any) -> Lazy:
    test = None if function is None else called(function)
    return Lazy(filter(test, _counted_or_lazy(values, budget)), values)


def _map(budget: Budget, function: Any, *several: Any) -> Lazy:
    if not several:
        raise EvaluationFailure("TypeError", "map() takes a function and what it is applied to")
    return Lazy(
        map(called(function), *(_counted_or_lazy(each, budget) for each in several)), *several
    )


def _zip(budget: Budget, *several: Any, strict: Any = False) -> Lazy:
    walked = [_counted_or_lazy(each, budget) for each in several]
    return Lazy(zip(*walked, strict=bool(strict)), *several)


def _reversed(budget: Budget, values: Any) -> Lazy:
    values = plain(values)
    if type(values) not in (list, tuple, str, range, dict):
        raise EvaluationFailure("TypeError", f"{describe(values)} cannot be reversed")
    return Lazy(_counted(reversed(values), budget))


def _number_or_text(value: Any, function: str) -> Any:
    value = plain(value)
    if type(value) is str and len(value) > _MOST_DIGITS:
        message = f"{function}() takes a text of at most {_MOST_DIGITS} characters"
        raise EvaluationFailure("ValueError", message)
    if type(value) not in SCALARS or value is None:
        message = f"{function}() takes a number or a text, not {describe(value)}"
        raise EvaluationFailure("TypeError", message)
    return value


def _float(_: Budget, value: Any = 0.0) -> float:
    return float(_number_or_text(value, "float"))


def _int(_: Budget, value: Any = 0, base: Any = _MISSING) -> int:
    value = _number_or_text(value, "int")
    return int(value) if base is _MISSING else int(value, number(base, "int"))


def _len(_: Budget, value: Any) -> int:
    return length_of(value)


def _list(budget: Budget, values: Any = ()) -> list[Any]:
    return take(values, budget)


def _tuple(budget: Budget, values: Any = ()) -> tuple[Any, ...]:
    return tuple(take(values, budget))


def _max(budget: Budget, *values: Any, key: Any = None, default: Any = _MISSING) -> Any:
    return _extreme(
        "max", lambda best, each: _LESS(budget, best, each), budget, values, key, default
    )


def _min(budget: Budget, *values: Any, key: Any = None, default: Any = _MISSING) -> Any:
    return _extreme(
        "min", lambda best, each: _LESS(budget, each, best), budget, values, key, default
    )


def _extreme(
    name: str,
    better: Callable[[Any, Any], Any],
    budget: Budget,
    values: tuple[Any, ...],
    key: Any,
    default: Any,
) -> Any:
    if not values:
        raise EvaluationFailure("TypeError", f"{name}() takes at least one value")
    candidates = take(values[0], budget) if len(values) == 1 else list(values)
    if not candidates:
        if default is _MISSING:
            raise EvaluationFailure("ValueError", f"{name}() of nothing (give it a default)")
        return default
    kinds = set(map(type, candidates))
    if key is None and kinds in ({int}, {float}):
        return max(candidates) if name == "max" else min(candidates)
    keys = candidates if key is None else list(map(called(key), candidates))
    best = 0
    for position in range(1, len(candidates)):
        budget.charge(1)
        if better(keys[best], keys[position]):
            best = position
    return candidates[best]


def sort(budget: Budget, values: list[Any], key: Any, *, reverse: bool) -> list[Any]:
    """Return a new sorted list; what comparing its elements takes is paid for first."""
    keys = values if key is None else list(map(called(key), values))
    if not set(map(type, keys)) <= {int, float, bool}:
        rounds = len(keys).bit_length()
        if all(type(each) is str for each in keys):
            budget.charge(sum(map(len, keys)) * rounds >> 12)
        else:
            budget.charge(walk(keys, budget)[0] * rounds >> 5)
            _check_ordered(keys, budget)
    if key is None:
        return sorted(values, reverse=reverse)
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    return [values[position] for position in order]


def _check_ordered(keys: list[Any], budget: Budget) -> None:
    """Raise where an element is of a class that expressions do not order."""
    for each in keys[1:]:
        _LESS(budget, each, keys[0])


def _sorted(budget: Budget, values: Any, *, key: Any = None, reverse: Any = False) -> list[Any]:
    members = take(values, budget)
    budget.charge(len(members))
    return sort(budget, members, key, reverse=bool(reverse))


def _pow(budget: Budget, base: Any, exp: Any, mod: Any = None) -> Any:
    return power(budget, base, exp, mod)


def _range(_: Budget, *bounds: Any) -> range:
    numbers = [plain(each) for each in bounds]
    for each in numbers:
        if type(each) not in (int, bool):
            raise EvaluationFailure("TypeError", f"range() takes integers, not {describe(each)}")
    return range(*numbers)


def _round(_: Budget, value: Any, ndigits: Any = None) -> Any:
    value = number(value, "round")
    if ndigits is None:
        return round(value)
    digits = number(ndigits, "round")
    if type(digits) is float:
        raise EvaluationFailure("TypeError", "round() takes a whole number of digits")
    if abs(digits) > LARGEST_BITS:
        raise EvaluationFailure("ValueError", "round() takes a smaller number of digits")
    return round(value, digits)


def _slice(_: Budget, *bounds: Any) -> slice:
    numbers = [plain(each) for each in bounds]
    for each in numbers:
        if each is not None and type(each) not in (int, bool):
            raise EvaluationFailure("TypeError", f"slice() takes integers, not {describe(each)}")
    return slice(*numbers)


def _str(budget: Budget, value: Any = "") -> str:
    return to_text(value, budget)


def _sum(budget: Budget, values: Any, start: Any = 0) -> Any:
    start = plain(start)
    if type(start) is str:
        raise EvaluationFailure("TypeError", "sum() adds numbers; texts are joined by ''.join(…)")
    numbers = take(values, budget)
    if type(start) in NUMBERS and set(map(type, numbers)) <= NUMBERS:
        return sum(numbers, start)
    total = start
    for each in numbers:
        budget.charge(1)
        total = add(budget, total, each)
    return total


TYPES: Final[Mapping[str, type]] = {
    each.__name__: each for each in (bool, dict, float, int, list, range, set, slice, str, tuple)
}


def _is_instance(_: Budget, *__: Any) -> bool:
    # The compiler writes it out: the types are names in the expression, never values.
    raise EvaluationFailure("TypeError", "isinstance() takes a value and the name of a type")


FUNCTIONS: Final[Mapping[str, Function]] = {
    "abs": _abs,
    "all": _all,
    "any": _any,
    "as_yaml": as_yaml,
    "bool": _bool,
    "chr": _chr,
    "dict": make_dict,
    "divmod": _divmod,
    "enumerate": _enumerate,
    "filter": _filter,
    "float": _float,
    "get": get,
    "hex": _hex,
    "int": _int,
    "isinstance": _is_instance,
    "len": _len,
    "list": _list,
    "log": log,
    "map": _map,
    "max": _max,
    "min": _min,
    "oct": _oct,
    "ord": _ord,
    "parse_json": parse_json,
    "pow": _pow,
    "print_json": print_json,
    "range": _range,
    "repr": _repr,
    "reversed": _reversed,
    "round": _round,
    "set": make_set,
    "slice": _slice,
    "sorted": _sorted,
    "str": _str,
    "sum": _sum,
    "tuple": _tuple,
    "zip": _zip,
}
# Where a function or a lambda may stand: as the first argument, or as `key`.
FIRST_IS_FUNCTION: Final = frozenset({"map", "filter"})
KEY_IS_FUNCTION: Final = frozenset({"sorted", "min", "max", "sort"})

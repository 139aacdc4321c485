"""The operators, each checked before its work is done."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from evalcore.expressions.budget import Budget, LimitError
from evalcore.expressions.percent import percent
from evalcore.expressions.values import (
    LARGEST,
    LARGEST_BITS,
    NUMBERS,
    SCALARS,
    VIEWS,
    EvaluationFailure,
    Lazy,
    check_key,
    describe,
    iterate,
    length_of,
    plain,
    walk,
)

Operator = Callable[[Budget, Any, Any], Any]
_SETS: Final = frozenset({set, frozenset}) | VIEWS
_SEQUENCES: Final = (str, list, tuple)
# Values that come from YAML and tools and are ordered by builtin code.
_ORDERED: Final = frozenset({datetime.date, datetime.datetime, datetime.timedelta, Decimal})


def _number(value: Any) -> Any:
    """Return a result unless it is an integer that is too large."""
    if type(value) is int and not -LARGEST < value < LARGEST:
        raise LimitError(f"an integer would have more than {LARGEST_BITS} bits")
    if type(value) is complex:
        raise EvaluationFailure("ValueError", "the result is a complex number")
    return value


def _unsupported(sign: str, left: Any, right: Any) -> EvaluationFailure:
    return EvaluationFailure(
        "TypeError", f"{describe(left)} {sign} {describe(right)} is not supported"
    )


def add(budget: Budget, left: Any, right: Any) -> Any:
    """Return the sum of numbers, or two texts, lists or tuples joined."""
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _number(left + right)
    left, right = plain(left), plain(right)
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _number(left + right)
    if type(left) in _SEQUENCES and type(left) is type(right):
        unit = 1 if type(left) is str else 8
        budget.room(unit * (len(left) + len(right)))
        return left + right
    raise _unsupported("+", left, right)


def _subtract(budget: Budget, left: Any, right: Any) -> Any:
    left, right = plain(left), plain(right)
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _number(left - right)
    if type(left) in _SETS and type(right) in _SETS:
        return _of_sets(operator.sub, budget, left, right)
    raise _unsupported("-", left, right)


def multiply(budget: Budget, left: Any, right: Any) -> Any:
    """Return the product of numbers, or a text, list or tuple repeated."""
    left, right = plain(left), plain(right)
    if type(left) in NUMBERS and type(right) in NUMBERS:
        if type(left) is int and type(right) is int:
            _check_bits(left.bit_length() + right.bit_length())
        return left * right
    for several, times in ((left, right), (right, left)):
        if type(several) in _SEQUENCES and type(times) in (int, bool):
            unit = 1 if type(several) is str else 8
            budget.room(unit * len(several) * max(0, times))
            return several * times
    raise _unsupported("*", left, right)


def _check_bits(bits: int) -> None:
    if bits > LARGEST_BITS:
        raise LimitError(f"an integer would have more than {LARGEST_BITS} bits")


def _arithmetic(sign: str, function: Callable[[Any, Any], Any]) -> Operator:
    def run(_: Budget, left: Any, right: Any) -> Any:
        left, right = plain(left), plain(right)
        if type(left) in NUMBERS and type(right) in NUMBERS:
            return _number(function(left, right))
        raise _unsupported(sign, left, right)

    return run


def _remainder(budget: Budget, left: Any, right: Any) -> Any:
    left = plain(left)
    if type(left) is str:
        return percent(left, right, budget)
    right = plain(right)
    if type(left) in NUMBERS and type(right) in NUMBERS:
        return _number(left % right)
    raise _unsupported("%", left, right)


def power(budget: Budget, left: Any, right: Any, modulus: Any = None) -> Any:
    """Return a power of numbers whose size has been checked first."""
    left, right, modulus = plain(left), plain(right), plain(modulus)
    if type(left) not in NUMBERS or type(right) not in NUMBERS:
        raise _unsupported("**", left, right)
    if modulus is not None:
        for number in (left, right, modulus):
            if type(number) not in (int, bool):
                raise EvaluationFailure("TypeError", "pow() with three arguments takes integers")
            _check_bits(number.bit_length())
        budget.charge(int(right).bit_length())
        return pow(left, right, modulus)
    if type(left) is not float and type(right) is not float:
        _check_bits(right.bit_length())
        if right > 0:
            _check_bits((left.bit_length() if abs(left) > 1 else 0) * right)
    return _number(left**right)


def _left_shift(_: Budget, left: Any, right: Any) -> Any:
    left, right = plain(left), plain(right)
    if type(left) not in (int, bool) or type(right) not in (int, bool):
        raise _unsupported("<<", left, right)
    if right > 0 and left:
        _check_bits(left.bit_length() + right)
    return left << right if left or right < 0 else 0


def _right_shift(_: Budget, left: Any, right: Any) -> Any:
    left, right = plain(left), plain(right)
    if type(left) not in (int, bool) or type(right) not in (int, bool):
        raise _unsupported(">>", left, right)
    return left >> right


def _of_sets(function: Callable[[Any, Any], Any], budget: Budget, left: Any, right: Any) -> Any:
    size = len(left) + len(right)
    budget.room(8 * size)
    budget.charge(size)
    for view in (left, right):
        if type(view) in VIEWS:  # their elements can be any values, the values' among them
            budget.charge(walk(view, budget)[0])
    return function(left, right)


def _bitwise(sign: str, function: Callable[[Any, Any], Any]) -> Operator:
    def run(budget: Budget, left: Any, right: Any) -> Any:
        left, right = plain(left), plain(right)
        if type(left) in (int, bool) and type(right) in (int, bool):
            return _number(function(left, right))
        if type(left) in _SETS and type(right) in _SETS:
            return _of_sets(function, budget, left, right)
        if sign == "|" and type(left) is dict and type(right) is dict:
            budget.room(8 * (len(left) + len(right)))
            budget.charge(len(left) + len(right))
            return left | right
        raise _unsupported(sign, left, right)

    return run


BINARY: Final[Mapping[str, Operator]] = {
    "Add": add,
    "Sub": _subtract,
    "Mult": multiply,
    "Div": _arithmetic("/", operator.truediv),
    "FloorDiv": _arithmetic("//", operator.floordiv),
    "Mod": _remainder,
    "Pow": power,
    "LShift": _left_shift,
    "RShift": _right_shift,
    "BitOr": _bitwise("|", operator.or_),
    "BitAnd": _bitwise("&", operator.and_),
    "BitXor": _bitwise("^", operator.xor),
}


def _unary(sign: str, function: Callable[[Any], Any], kinds: frozenset[type]) -> Any:
    def run(value: Any) -> Any:
        value = plain(value)
        if type(value) not in kinds:
            raise EvaluationFailure("TypeError", f"{sign}{describe(value)} is not supported")
        return _number(function(value))

    return run


UNARY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "UAdd": _unary("+", operator.pos, NUMBERS),
    "USub": _unary("-", operator.neg, NUMBERS),
    "Invert": _unary("~", operator.invert, frozenset({int, bool})),
    "Not": operator.not_,
}


def equal(budget: Budget, left: Any, right: Any) -> Any:
    """Return whether two values are equal; their elements are compared at all depths."""
    _charge_both(budget, left, right)
    return left == right


def unequal(budget: Budget, left: Any, right: Any) -> Any:
    """Return whether two values differ."""
    _charge_both(budget, left, right)
    return left != right


def _charge_both(budget: Budget, left: Any, right: Any) -> None:
    """Take the steps for comparing two collections.

    Both are walked: of a mapping's items, which may be on either side, all values are hashed.
    """
    if type(left) not in SCALARS and type(right) not in SCALARS:
        budget.charge((walk(left, budget)[0] >> 5) + (walk(right, budget)[0] >> 5))


def _ordering(sign: str, function: Callable[[Any, Any], Any]) -> Operator:
    def run(budget: Budget, left: Any, right: Any) -> Any:
        left_type, right_type = type(left), type(right)
        if left_type in SCALARS and right_type in SCALARS:
            return function(left, right)
        left, right = plain(left), plain(right)
        left_type, right_type = type(left), type(right)
        if left_type in SCALARS and right_type in SCALARS:
            return function(left, right)
        if (left_type is right_type and left_type in (list, tuple)) or (
            left_type in _SETS and right_type in _SETS
        ):
            _charge_both(budget, left, right)
            return function(left, right)
        if left_type in _ORDERED and (right_type in _ORDERED or right_type in NUMBERS):
            return function(left, right)
        if right_type in _ORDERED and left_type in NUMBERS:
            return function(left, right)
        raise _unsupported(sign, left, right)

    return run


def contains(budget: Budget, item: Any, within: Any) -> bool:
    """Return whether an item is in a text, collection, range or lazy value."""
    kind = type(within)
    if kind is str:
        if not isinstance(item, str):
            raise EvaluationFailure(
                "TypeError", f"a text can only hold a text, not {describe(item)}"
            )
        budget.charge(len(within) >> 10)
        return plain(item) in within
    if kind is dict or kind in (set, frozenset):
        check_key(item, budget)
        return item in within
    if kind is range:
        return _in_range(item, within)
    if isinstance(within, Mapping):
        check_key(item, budget)
        return item in within
    if kind is Lazy:
        return any(equal(budget, item, each) or item is each for each in within)
    within = plain(within)
    if type(within) is str:
        return contains(budget, item, within)
    charge_comparing(budget, item, length_of(within))
    if type(item) not in SCALARS:
        walk(within, budget)
    return item in within if type(within) in (list, tuple) else _is_in(item, within, budget)


def charge_comparing(budget: Budget, item: Any, times: int) -> None:
    """Take the steps for comparing an item with so many others."""
    weight = 1
    if type(item) is str:
        weight += len(item) >> 10
    elif type(item) not in SCALARS:
        weight += walk(item, budget)[0]
    budget.charge(weight * times >> 5)


def _is_in(item: Any, within: Any, budget: Budget) -> bool:
    return any(item is each or item == each for each in iterate(within, budget))


def _in_range(item: Any, within: range) -> bool:
    item = plain(item)
    if type(item) is float:
        return item.is_integer() and int(item) in within
    return type(item) in (int, bool) and item in within


COMPARING: Final[Mapping[str, Operator]] = {
    "Eq": equal,
    "NotEq": unequal,
    "Lt": _ordering("<", operator.lt),
    "LtE": _ordering("<=", operator.le),
    "Gt": _ordering(">", operator.gt),
    "GtE": _ordering(">=", operator.ge),
    "In": contains,
    "NotIn": lambda budget, left, right: not contains(budget, left, right),
    "Is": lambda _, left, right: left is right,
    "IsNot": lambda _, left, right: left is not right,
}

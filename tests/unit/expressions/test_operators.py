"""Operators of expressions: Python's values, within bounds that are checked before the work."""

from __future__ import annotations

import datetime
from collections import UserDict
from collections.abc import Mapping
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest

from evalcore.expressions.engine import plain_data
from evalcore.expressions.template import compile_template
from tests.support.expression_failures import failure_of


class Level(IntEnum):
    LOW = 1
    HIGH = 3


class Name(str):
    __slots__ = ()


class Row(tuple[Any, ...]):
    __slots__ = ()


class Rows(list[Any]):
    pass


class Ratio(float):
    pass


SCOPE: Mapping[str, Any] = plain_data(
    {
        "low": Level.LOW,
        "high": Level.HIGH,
        "name": Name("ab"),
        "row": Row((1, 2)),
        "rows": Rows([1, 2]),
        "half": Ratio(0.5),
        "price": Decimal("1.5"),
        "day": datetime.date(2026, 11, 23),
        "later": datetime.date(2026, 12, 24),
        "hour": datetime.timedelta(hours=1),
        "table": UserDict({"a": 1}),
        "d": {"a": 1, "b": 2},
    }
)

VALUES: Mapping[str, Any] = {
    # Classes derived from builtin ones count as the builtin ones.
    "low + high": 4,
    "high / 2": 1.5,
    "high ** 2": 9,
    "name + 'c'": "abc",
    "name * 2": "abab",
    "row + (3,)": (1, 2, 3),
    "rows + [3]": [1, 2, 3],
    "2 * [1, 2]": [1, 2, 1, 2],
    "'ab' * -1": "",
    "high > low": True,
    "rows < [1, 3]": True,
    # Shifts and bits.
    "1 << 4": 16,
    "0 << 100000": 0,
    "17 >> 4": 1,
    "-1 >> 100000": -1,
    "6 | 1": 7,
    "6 & 3": 2,
    "6 ^ 3": 5,
    "~5": -6,
    # Powers.
    "2 ** 10": 1024,
    "2 ** -1": 0.5,
    "pow(3, 200, 7)": 2,
    "pow(3, -1, 7)": 5,
    # Sets, and the views of mappings.
    "{1, 2, 3} - {2}": {1, 3},
    "{1, 2} | {3}": {1, 2, 3},
    "{1, 2} ^ {2, 3}": {1, 3},
    "d.keys() - {'a'}": {"b"},
    "d.keys() & {'a', 'z'}": {"a"},
    "{1} < {1, 2}": True,
    "d | {'b': 3}": {"a": 1, "b": 3},
    # Values of YAML and of tools that have an order.
    "day < later": True,
    "price > 1": True,
    "hour <= hour": True,
    # Membership.
    "'b' in name": True,
    "1 in row": True,
    "'a' in d": True,
    "'a' in table": True,
    "'z' not in table": True,
    "(1, 2) in {(1, 2)}": True,
    "2 in range(5)": True,
    "high in range(5)": True,
    "'2' in range(5)": False,
    "4 in (x * x for x in range(3))": True,
    "'a' in d.keys()": True,
    "[1, 2] != [1, 3]": True,
    "[1] is not [1]": True,
    "nothing is None": True,
}


@pytest.mark.parametrize("expression", VALUES)
def test_an_operator_gives_the_value_that_python_gives(expression: str) -> None:
    value = compile_template(f"${{{expression}}}").render({**SCOPE, "nothing": None})
    assert value == VALUES[expression]
    assert type(value) is type(VALUES[expression])


FAILURES: Mapping[str, tuple[str, str]] = {
    "1 + 'a'": ("TypeError", "unsupported operand type(s) for +: 'int' and 'str'"),
    "[1] + (2,)": ("TypeError", "can only concatenate list"),
    "{1} - [1]": ("TypeError", "unsupported operand type(s) for -: 'set' and 'list'"),
    "'a' * 'b'": ("TypeError", "can't multiply sequence by non-int of type 'str'"),
    "'a' / 2": ("TypeError", "unsupported operand type(s) for /: 'str' and 'int'"),
    "'a' ** 2": ("TypeError", "unsupported operand type(s) for ** or pow(): 'str' and 'int'"),
    "1.0 << 2": ("TypeError", "unsupported operand type(s) for <<: 'float' and 'int'"),
    "d & d": ("TypeError", "unsupported operand type(s) for &: 'dict' and 'dict'"),
    "-'a'": ("TypeError", "bad operand type for unary -: 'str'"),
    "1 < 'a'": ("TypeError", "'<' not supported between instances of 'int' and 'str'"),
    "[1] < (1,)": ("TypeError", "'<' not supported between instances of 'list' and 'tuple'"),
    "1 in 'abc'": ("TypeError", "'in <string>' requires string as left operand, not int"),
    "1 in 5": ("TypeError", "argument of type 'int' is not iterable"),
    "day < 'x'": ("TypeError", "'<' not supported between instances of 'datetime.date' and 'str'"),
    "1 / 0": ("ZeroDivisionError", "division by zero"),
    "1 << -1": ("ValueError", "negative shift count"),
    "(-8) ** 0.5": ("ValueError", "the result is a complex number"),
    "pow(2, 3, 0)": ("ValueError", "3rd argument cannot be 0"),
    "pow(2.0, 3, 5)": (
        "TypeError",
        "pow() 3rd argument not allowed unless all arguments are integers",
    ),
    # Refused before the number or the text is made.
    "2 ** 100000": ("LimitError", "more than 10000 bits"),
    "2 ** 2 ** 100": ("LimitError", "more than 10000 bits"),
    "1 << 100000": ("LimitError", "more than 10000 bits"),
    "(1 << 9000) * (1 << 9000)": ("LimitError", "more than 10000 bits"),
    "'a' * 100000000": ("LimitError", "larger than 10,000,000 bytes"),
    "[0] * 10000000": ("LimitError", "larger than 10,000,000 bytes"),
}


@pytest.mark.parametrize("expression", FAILURES)
def test_an_operator_that_has_no_value_says_why(expression: str) -> None:
    kind, reason = FAILURES[expression]
    error = failure_of(f"${{{expression}}}", SCOPE)
    assert error.kind == kind
    assert reason in error.reason
    assert error.source == f"${{{expression}}}"

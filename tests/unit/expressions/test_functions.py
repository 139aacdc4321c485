"""Functions of expressions: Python's values, and messages that name the function."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import pytest

from evalcore.expressions.engine import plain_data
from evalcore.expressions.template import compile_template
from tests.support.expression_failures import failure_of


class Level(IntEnum):
    HIGH = 3


SCOPE: Mapping[str, Any] = plain_data(
    {
        "xs": [3, 1, 2],
        "high": Level.HIGH,
        "d": {"b": 1, "a": 2},
        "pairs": [["a", 1], ("b", 2)],
        "name": "value",
    }
)

VALUES: Mapping[str, Any] = {
    "abs(-2.5)": 2.5,
    "all(x > 0 for x in xs)": True,
    "all({0, 1})": False,
    "any(d.values())": True,
    "bool([0])": True,
    "chr(233)": "é",
    "ord('é')": 233,
    "hex(255)": "0xff",
    "dict(pairs, c=3)": {"a": 1, "b": 2, "c": 3},
    "divmod(7, 2)": (3, 1),
    "list(enumerate('ab', 1))": [(1, "a"), (2, "b")],
    "list(filter(None, [0, 1, '']))": [1],
    "list(map(lambda a, b: a * b, xs, [1, 2, 3]))": [3, 2, 6],
    "list(zip(xs, 'ab'))": [(3, "a"), (1, "b")],
    "list(reversed(d))": ["a", "b"],
    "float('1.5')": 1.5,
    "int('ff', 16)": 255,
    "int(high)": 3,
    "len(range(10))": 10,
    "max(1, 2.5)": 2.5,
    "max(d, key=lambda k: d[k])": "a",
    "max([], default=0)": 0,
    "min('bb', 'a', key=len)": "a",
    "min([(2, 'a'), (1, 'b')])": (1, "b"),
    "sorted(xs, reverse=True)": [3, 2, 1],
    "sorted(['b', 'A'], key=lambda t: t.lower())": ["A", "b"],
    "range(1, 4)": range(1, 4),
    "repr('a')": "'a'",
    "round(2.567, 1)": 2.6,
    "round(2.5)": 2,
    "xs[slice(0, None, 2)]": [3, 2],
    "str(None)": "None",
    "sum([[1], [2]], [])": [1, 2],
    "sum([0.5, 1], 1)": 2.5,
    "set(range(600)) == set(reversed(range(600)))": True,
    "isinstance(xs, list)": True,
    "isinstance(1, (str, float))": False,
    "get(d, 'a')": 2,
    "get(d, 'z', 0)": 0,
    "get(xs, -1)": 2,
    "get(xs, 9, 'none')": "none",
    "parse_json('[1, {\"a\": null}]')": [1, {"a": None}],
    "parse_json('no', True)": "no",
    "parse_json(xs, ignore_error=True)": [3, 1, 2],
    "print_json({'b': [1, None], 'a': 'é'})": '{"b": [1, null], "a": "é"}',
    "print_json({'a': {2, 1}}, pretty=True)": '{\n  "a": [\n    1,\n    2\n  ]\n}',
    "as_yaml({'b': [1], 'a': 'long text'}, 4)": "b:\n- 1\na: long…\n",
    "as_yaml('a')": "a\n",
}


@pytest.mark.parametrize("expression", VALUES)
def test_a_function_gives_the_value_that_is_documented(expression: str) -> None:
    value = compile_template(f"${{{expression}}}").render(SCOPE)
    assert value == VALUES[expression]
    assert type(value) is type(VALUES[expression])


FAILURES: Mapping[str, tuple[str, str]] = {
    "abs('a')": ("TypeError", "bad operand type for abs(): 'str'"),
    "chr(-1)": ("ValueError", "chr()"),
    "hex(1.5)": ("TypeError", "'float' object cannot be interpreted as an integer"),
    "ord('ab')": ("TypeError", "ord()"),
    "dict([[1, 2, 3]])": (
        "ValueError",
        "dictionary update sequence element #0 has length 3; 2 is required",
    ),
    "set([[1]])": ("TypeError", "unhashable"),
    "reversed({1})": ("TypeError", "'set' object is not reversible"),
    "float(None)": (
        "TypeError",
        "float() argument must be a string or a real number, not 'NoneType'",
    ),
    "float('a')": ("ValueError", "could not convert"),
    "len(5)": ("TypeError", "object of type 'int' has no len()"),
    "max()": ("TypeError", "max expected at least 1 argument, got 0"),
    "max(1, 'a')": ("TypeError", "'>' not supported between instances of 'str' and 'int'"),
    "sorted([1, 'a'])": ("TypeError", "'<' not supported"),
    "range(1, 2, 0)": ("ValueError", "must not be zero"),
    "round('a')": ("TypeError", "type str doesn't define __round__ method"),
    "slice('a')": ("TypeError", "a slice is no value"),
    "sum(['a'], '')": ("TypeError", "sum() can't sum strings [use ''.join(seq) instead]"),
    "list(zip([1], [1, 2], strict=True))": ("ValueError", "zip()"),
    "parse_json('{')": ("ValueError", "parse_json(): the text is no JSON"),
    "print_json(x for x in xs)": ("TypeError", "print_json() takes no generator"),
    "as_yaml(x for x in xs)": ("TypeError", "as_yaml() takes no generator"),
    "list(range(10 ** 9))": ("LimitError", "there is not enough memory for it"),
    "[map(str, xs)]": ("TypeError", "a generator in a value; make a list of it: list(…)"),
}


@pytest.mark.parametrize("expression", FAILURES)
def test_a_function_that_has_no_value_says_why(expression: str) -> None:
    kind, reason = FAILURES[expression]
    error = failure_of(f"${{{expression}}}", SCOPE)
    assert error.kind == kind
    assert reason in error.reason

"""Methods of texts and collections: what they return and what they change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from evalcore.expressions.engine import ExpressionError
from evalcore.expressions.template import compile_template


def evaluate(expression: str, scope: Mapping[str, Any]) -> Any:
    return compile_template(f"${{{expression}}}").render(scope)


# The method's call on `value`, what it returns, and what `value` is afterwards.
CHANGES: Mapping[str, tuple[Any, str, Any, Any]] = {
    "append": ([1], "value.append(2)", None, [1, 2]),
    "extend": ([1], "value.extend({3, 2})", None, [1, 2, 3]),
    "extend by itself": ([1, 2], "value.extend(value)", None, [1, 2, 1, 2]),
    "insert": ([1, 2], "value.insert(1, 9)", None, [1, 9, 2]),
    "pop the last": ([1, 2], "value.pop()", 2, [1]),
    "remove": ([1, 2, 1], "value.remove(1)", None, [2, 1]),
    "clear": ([1, 2], "value.clear()", None, []),
    "sort": ([3, 1, 2], "value.sort()", None, [1, 2, 3]),
    "sort by a key, downwards": (
        ["b", "ccc", "aa"], "value.sort(key=len, reverse=True)", None, ["ccc", "aa", "b"],
    ),
    "index": ([5, 6, 5], "value.index(5, 1)", 2, [5, 6, 5]),
    "get without": ({"a": 1}, "value.get('z', 7)", 7, {"a": 1}),
    "items": ({"a": 1, "b": 2}, "value.items()", [("a", 1), ("b", 2)], {"a": 1, "b": 2}),
    "pop with a default": ({"b": 2}, "value.pop('a', 0)", 0, {"b": 2}),
    "popitem": ({"a": 1, "b": 2}, "value.popitem()", ("b", 2), {"a": 1}),
    "setdefault sets": ({"a": 1}, "value.setdefault('b', 2)", 2, {"a": 1, "b": 2}),
    "update": ({"a": 1}, "value.update({'a': 2}, b=3)", None, {"a": 2, "b": 3}),
    "add": ({1}, "value.add(2)", None, {1, 2}),
    "discard": ({1, 2}, "value.discard(2)", None, {1}),
    "pop of a set is its first in order": ({"c", "a", "b"}, "value.pop()", "a", {"b", "c"}),
    "update of a set": ({1}, "value.update([2], {3})", None, {1, 2, 3}),
    "intersection_update": ({1, 2, 3}, "value.intersection_update([2, 3, 4])", None, {2, 3}),
    "union": ({1}, "value.union([2], (3,))", {1, 2, 3}, {1}),
    "issubset": ({1}, "value.issubset([1, 2])", True, {1}),
    "isdisjoint of a view": ({"a": 1}, "value.keys().isdisjoint(['b'])", True, {"a": 1}),
    "union of a frozen set": (frozenset({1}), "value.union({2})", {1, 2}, {1}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_method_returns_and_changes_what_python_s_does(name: str) -> None:
    value, call, returned, afterwards = CHANGES[name]
    assert evaluate(call, {"value": value}) == returned
    assert value == afterwards


TEXTS: Mapping[str, Any] = {
    "'a b  c'.split()": ["a", "b", "c"],
    "'a,b,c'.split(',')": ["a", "b", "c"],
    "'a,b,c'.rsplit(',', 1)": ["a,b", "c"],
    "'a\\nb\\n'.splitlines()": ["a", "b"],
    "'a-a-a'.replace('-', '+', 1)": "a+a-a",
    "'xxaxx'.strip('x')": "a",
    "'straße'.upper()": "STRASSE",
    "'abc'.startswith(('x', 'ab'))": True,
    "'abcabc'.find('c', 3)": 5,
    "'-'.join(str(n) for n in range(3))": "0-1-2",
    "'{} {}'.format(1, 'a')": "1 a",
    "'{a[b]} {0[1]}'.format([5, 6], a={'b': 7})": "7 6",
    "'{:>{w}}'.format('x', w=3)": "  x",
    "'%s is %d (%r)' % ('a', 2, 'b')": "a is 2 ('b')",
    "'%(n)03d' % {'n': 7}": "007",
    "'%5.1f%%' % 12.34": " 12.3%",
}


@pytest.mark.parametrize("expression", TEXTS)
def test_a_text_s_method_gives_the_value_that_python_gives(expression: str) -> None:
    assert evaluate(expression, {}) == TEXTS[expression]


FAILURES: Mapping[str, tuple[str, str]] = {
    "[].pop()": ("IndexError", "pop from empty list"),
    "[1].remove(2)": ("ValueError", "not in list"),
    "{}.popitem()": ("KeyError", "empty"),
    "set([1]).remove(2)": ("KeyError", "2"),
    "{}.update([(1, 2, 3)])": (
        "ValueError",
        "dictionary update sequence element #0 has length 3; 2 is required",
    ),
    "xs.append(xs)": ("LimitError", "a value is nested deeper than 100 levels"),
    "d.update(a=d)": ("LimitError", "a value is nested deeper than 100 levels"),
    "d.setdefault('me', d)": ("LimitError", "a value is nested deeper than 100 levels"),
    "xs.insert(0, d.keys())": ("TypeError", "make a list of it"),
    "xs.append(map(str, xs))": ("TypeError", "make a list of it"),
    "[3, 'a'].sort()": ("TypeError", "'<' not supported"),
    "'a'.join([1])": ("TypeError", "sequence item 0: expected str instance, int found"),
    "'a'.ljust(100000000)": ("LimitError", "larger than 10,000,000 bytes"),
    "('a' * 1000).replace('a', 'b' * 100000)": ("LimitError", "larger than 10,000,000 bytes"),
    "'\\t'.expandtabs(100000000)": ("LimitError", "larger than 10,000,000 bytes"),
    "('x' * 100000).join(str(n) for n in range(1000))": ("LimitError", "10,000,000 bytes"),
    "'{} {0}'.format(1)": (
        "ValueError",
        "cannot switch from manual field specification to automatic field numbering",
    ),
    "'{}'.format()": ("IndexError", "format() has no value for field 0"),
    "'{a}'.format(b=1)": ("KeyError", "a"),
    "'{_a}'.format(_=1)": ("AttributeError", "names beginning with '_' are not available"),
    "'%d' % 'a'": ("TypeError", "%d format: a real number is required, not str"),
    "'%s %s' % 'a'": ("TypeError", "not enough arguments for format string"),
    "'%s' % (1, 2)": ("TypeError", "not all arguments converted"),
    "'%(a)s' % {'b': 1}": ("KeyError", "a"),
    "'%' % 1": ("ValueError", "incomplete format"),
}


@pytest.mark.parametrize("expression", FAILURES)
def test_a_method_that_has_no_value_says_why(expression: str) -> None:
    kind, reason = FAILURES[expression]
    scope: dict[str, Any] = {"xs": [1], "d": {"a": 1}}
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression, scope)
    assert (caught.value.kind, scope) == (kind, {"xs": [1], "d": {"a": 1}})
    assert reason in caught.value.reason

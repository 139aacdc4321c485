"""Texts with `${…}` and JSON values of them: what they mean, and how they fail."""

from __future__ import annotations

import datetime
import logging
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from evalcore.expressions.engine import ExpressionError, ExpressionSyntaxError, plain_data
from evalcore.expressions.template import compile_template, compile_tree

SCOPE: Mapping[str, Any] = plain_data(
    {
        "a": 1,
        "name": "World",
        "d": {"a": 1, "b": {"c": 0.4}, "items": [1], "_id": 7},
        "xs": [3, 1, 2],
        "words": ["alpha", "beta"],
        "_": "yes, Hello",
        "_match_groups": ("yes", None),
        "max": 9,
        "raw": '{"score": 0.75}',
        "when": datetime.date(2026, 11, 22),
        "frozen": MappingProxyType({"k": {"z": 1}}),
        "ordered": OrderedDict(k=1),
        "nothing": None,
    }
)

VALUES: dict[str, tuple[str, Any]] = {
    "a set in its order": ("${[x for x in {'c', 'a', 'b', 'd'}]}", ["a", "b", "c", "d"]),
    "a set joined": ("${''.join({'c', 'a', 'b', 'd'})}", "abcd"),
    "sets as text": (
        "${str([{'c', 'a', 'b'}, set(), (1,), {'k': {2}}])}",
        "[{'a', 'b', 'c'}, set(), (1,), {'k': {2}}]",
    ),
    "a set in a text": ("x ${ {'c', 'a', 'b', 'é'} }", "x {'a', 'b', 'c', 'é'}"),
    "a set as ASCII": ("${f\"{ {'é', 'a'} !a}\"}", "{'a', '\\xe9'}"),
    "no expression": ("plain $ {text} }", "plain $ {text} }"),
    "nothing": ("", ""),
    "type kept": ("${a}", 1),
    "trailing newline ignored": ("${a}\n", 1),
    "two trailing newlines are text": ("${a}\n\n", "1\n\n"),
    "space before makes a text": (" ${a}", " 1"),
    "joined": ("Hello, ${name}: ${a + 1}!", "Hello, World: 2!"),
    "none in a text": ("<${nothing}>", "<None>"),
    "escaped": (r"\${a} is ${a}", "${a} is 1"),
    "escaped alone": (r"\${a}", "${a}"),
    "brace in a literal": ("${'}' + '{'}", "}{"),
    "brace after an escaped quote": (r"${'\'}'}", "'}"),
    "dict literal": ("${ {'k': {'n': 1}} }", {"k": {"n": 1}}),
    "set literal": ("${{1, 2}}", {1, 2}),
    "f-string": ("${f'{a}-{name!r:>8}'}", "1- 'World'"),
    "nested f-string": ("${f'{f\"{a}\"}}}'}", "1}"),
    "f-string with a dict": ("${f\"{ {'k': a}['k'] }\"}", "1"),
    "f-string with a date": ("${f'{when:%Y/%m}'}", "2026/11"),
    "several lines": ("${\n  1.0 if 'yes' in _\n  else 0.0\n}\n", 1.0),
    "comment": ("${\n  a  # } not the end\n}", 1),
    "previous result": ("${_.lower()}", "yes, hello"),
    "groups of a match": ("${_match_groups[0]}", "yes"),
    "key by a dot": ("${d.b.c}", 0.4),
    "key that is a method's name": ("${d.items}", [1]),
    "method where there is such a key": ("${len(d.items())}", 4),
    "key with an underscore": ("${d['_id']}", 7),
    "any mapping's key": ("${frozen.k.z + ordered.k}", 2),
    "function named as a variable": ("${max(xs) + max}", 12),
    "slice": ("${xs[::-1][:2]}", [2, 1]),
    "slice by its function": ("${xs[slice(1, None)]}", [1, 2]),
    "generator as the whole": ("${x * 2 for x in xs}", [6, 2, 4]),
    "map as the whole": ("${map(str.upper, words)}", ["ALPHA", "BETA"]),
    "keys as the whole": ("${d.b.keys()}", ["c"]),
    "lazy as in Python": ("${any(1 / x > 0 for x in [1, 0])}", True),
    "generators apart": (
        "${list(zip(*[(y for y in xs) for _ in range(2)]))}",
        [(3, 3), (1, 1), (2, 2)],
    ),
    "key function": ("${sorted(words, key=len)}", ["beta", "alpha"]),
    "lambda with a default": ("${list(map(lambda x, k=2: x * k, xs))}", [6, 2, 4]),
    "lambda that sees variables": ("${max(xs, key=lambda x: -x * a)}", 1),
    "unpacked": ("${[k + str(v) for k, v in {'p': 1}.items()]}", ["p1"]),
    "starred": ("${[b for a, *b in [(1, 2, 3)]]}", [[2, 3]]),
    "comprehension within one": ("${[[x * y for y in xs] for x in xs if x > 2]}", [[9, 3, 6]]),
    "chained comparison": ("${1 < 2 < 2}", False),
    "percent": ("${'%-4s|%5.1f%%' % ('ab', 2.25)}", "ab  |  2.2%"),
    "percent by key": ("${'%(a)s %(a)r' % {'a': 'x'}}", "x 'x'"),
    "format": (
        "${'{} {k[b][c]} {0.b.c:.2f}'.replace('{}', '{0[a]}').format(d, k=d)}",
        "1 0.4 0.40",
    ),
    "isinstance by a union": ("${isinstance(nothing, str | None)}", True),
    "print_json": (
        "${print_json({'b': [1, 'ä', None], 'c': when})}",
        '{"b": [1, "ä", null], "c": "2026-11-22"}',
    ),
    "date kept": ("${when}", datetime.date(2026, 11, 22)),
    "dates compared": ("${when < when}", False),
}

ERRORS: dict[str, tuple[str, str, str]] = {
    "unknown name": ("${nmae}", "NameError", "no variable 'nmae'; did you mean 'name'?"),
    "unknown function": ("${flot('1')}", "NameError", "no function 'flot'; did you mean 'float'?"),
    "missing key by a dot": ("${d.b.zz}", "KeyError", "no key 'zz'"),
    "missing key by an index": ("${d['zz']}", "KeyError", "no key 'zz'"),
    "key of no mapping": ("${a.b}", "AttributeError", "an int has no attribute 'b'"),
    "unknown method": ("${name.upperr()}", "AttributeError", "did you mean 'upper'?"),
    "division by zero": ("x ${1 / 0} y", "ZeroDivisionError", "division by zero"),
    "index": ("${xs[5]}", "IndexError", "index out of range"),
    "method's arguments": ("${name.upper(1, 2)}", "TypeError", "upper()"),
}

SYNTAX: dict[str, tuple[str, int, int, str]] = {
    "never closed": ("abc ${a + 1", 1, 5, "never closed"),
    "empty": ("ab ${  }", 1, 6, "empty"),
    "operator missing": ("${a b}", 1, 3, "invalid syntax"),
    "something missing at the end": ("${1 +}", 1, 6, "invalid syntax, in ${1 +}"),
    "missing at the end of lines": ("${\n 1 +\n}", 3, 1, "invalid syntax, in ${1 +}"),
    "told on one line": ("${1\n2}", 1, 3, "invalid syntax, in ${1 2}"),
    "told in short": (f"${{1 +{' 1 +' * 2000}}}", 1, 8006, "1 +…}"),
    "in the second line": ("${a +\n  (b c)}", 2, 4, "invalid syntax"),
    "after a line of text": ("text\n ${a +* b}", 2, 7, "invalid syntax"),
    "forbidden attribute": ("é ${name.__class__}", 1, 5, "__class__"),
    "forbidden in the second line": ("${a +\n  (b := 1)}", 2, 4, "':='"),
}


@pytest.mark.parametrize(("text", "value"), VALUES.values(), ids=VALUES)
def test_a_text_has_its_value(text: str, value: Any) -> None:
    rendered = compile_template(text).render(SCOPE)
    assert rendered == value
    assert type(rendered) is type(value)


@pytest.mark.parametrize(("text", "kind", "reason"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_its_kind_and_the_expression(text: str, kind: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as failed:
        compile_template(text).render(SCOPE)
    assert failed.value.kind == kind
    assert reason in failed.value.reason
    assert str(failed.value).startswith(text[text.index("$") : text.index("}") + 1])


@pytest.mark.parametrize(("text", "line", "column", "message"), SYNTAX.values(), ids=SYNTAX)
def test_a_syntax_error_has_its_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ExpressionSyntaxError) as refused:
        compile_template(text)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert message in str(refused.value)


def test_what_python_remarks_on_is_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    assert compile_template("${1if 'a\\d' else 2}").render({}) == 1
    assert not recwarn.list


def test_an_expression_may_change_a_list_of_the_scope() -> None:
    scope = {"xs": [1]}
    assert compile_template("${xs.append(2) or len(xs)}").render(scope) == 2
    assert scope == {"xs": [1, 2]}


def test_a_tree_renders_every_text_in_it_and_copies_the_rest() -> None:
    value = {"a": ["${a}", "x ${name}", {"${a}": r"\${a}"}], "b": 1.5, "c": [[]]}
    tree = compile_tree(value)
    first, second = tree.render(SCOPE), tree.render(SCOPE)
    assert first == {"a": [1, "x World", {"${a}": "${a}"}], "b": 1.5, "c": [[]]}
    first["c"][0].append(1)
    assert second["c"] == [[]]
    assert value["c"] == [[]]


def test_an_error_in_a_tree_has_its_path() -> None:
    with pytest.raises(ExpressionSyntaxError) as refused:
        compile_tree({"a": [1, {"b": "${1 +}"}]})
    assert refused.value.path == ("a", 1, "b")


def test_log_writes_one_line_and_gives_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="evalcore.expressions"):
        assert compile_template(r"${log('a\n%s', name)}").render(SCOPE) is None
    assert caplog.messages == [r"a\nWorld"]

from __future__ import annotations

import pytest

from evalcore.checks.json import TransformError, apply_transform
from tests.unit.checks.checking import ERROR, FAILED, PASSED, assertion, result

FOUND = {
    "a text as it is": ('{"a": "x\\ny"}', "$.a", "x\ny"),
    "a number": ('{"a": 1.50}', "$.a", "1.5"),
    "a bool": ('{"ok": true}', "$.ok", "true"),
    "null": ('{"a": null}', "$.a", "null"),
    "an object": ('{"a": {"é": [1, 2]}}', "$.a", '{"é": [1, 2]}'),
    "the first of several": ('{"i": [{"n": "a"}, {"n": "b"}]}', "$.i[*].n", "a"),
    "a filter": ('[{"k": 1, "v": "x"}, {"k": 2, "v": "y"}]', "$[?@.k == 2].v", "y"),
    "descendants": ('{"a": {"b": {"c": 7}}}', "$..c", "7"),
    "the whole": ("[1]", "$", "[1]"),
    "a slice of a list": ('{"a": ["x", "y", "z"]}', "$.a[1:]", "y"),
    "slices below, not of strings": ('{"a": "hello", "l": [["x"]]}', "$..[0:1]", '["x"]'),
    "a quoted step": ('{"a b": {"c.d": 5}}', "$.\"a b\".'c.d'", "5"),
    "a numeric step": ('{"0": {"n": "x"}}', "$.0.n", "x"),
    "brackets after a dot": ('{"i": [{"n": 1}]}', "$.i.[0].n", "1"),
    "a quoted name alone": ('{"a b": 1}', '"a b"', "1"),
    "a quoted step below": ('{"a": {"b c": 2}}', '$.."b c"', "2"),
    "spaces around the expression": ('{"a": 1}', " $.a ", "1"),
}


@pytest.mark.parametrize(("output", "expression", "expected"), FOUND.values(), ids=FOUND)
def test_json_path_gives_the_first_match_as_text(
    output: str, expression: str, expected: str
) -> None:
    assert apply_transform(f"json_path:{expression}", output) == expected


BROKEN = {
    "no match": ("json_path:$.nope", '{"a": "x"}'),
    "not JSON": ("json_path:$.f", "plain text"),
    "not strictly JSON": ("json_path:$[0]", "[NaN]"),
    "unknown": ("xpath:$.a", '{"a": "x"}'),
    "malformed": ("json_path:$[", "{}"),
    "empty": ("json_path:", "{}"),
    "an open quote": ('json_path:$."a', '{"a": 1}'),
    "a slice of a string": ("json_path:$.a[0:2]", '{"a": "hello"}'),
    "a slice with a step of a string": ("json_path:$.a[::-1]", '{"a": "hello"}'),
    "nested too deeply": ("json_path:$", "[" * 100_000),
}


@pytest.mark.parametrize(("transform", "output"), BROKEN.values(), ids=BROKEN)
def test_a_transform_that_gives_nothing_is_an_error_that_names_it(
    transform: str, output: str
) -> None:
    with pytest.raises(TransformError) as caught:
        apply_transform(transform, output)
    assert transform in str(caught.value)


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize(("transform", "output"), BROKEN.values(), ids=BROKEN)
def test_a_broken_transform_is_never_negated_into_a_pass(
    transform: str, output: str, negate: bool
) -> None:
    one = assertion("contains", {"value": "", "fold": False}, transform=transform, negate=negate)
    ended = result(one, output)
    assert (ended.outcome, ended.score) == (ERROR, 0.0)
    assert transform in ended.message


def test_the_check_looks_at_the_transformed_text() -> None:
    one = assertion("equals", {"value": "True", "trim": None}, transform="json_path:$.ok")
    ended = result(one, '{"ok": true}')
    assert (ended.outcome, ended.actual) == (FAILED, "true")
    one = assertion("equals", {"value": "true", "trim": None}, transform="json_path:$.ok")
    assert result(one, '{"ok": true}').outcome is PASSED


def test_a_malformed_expression_is_told_in_one_line() -> None:
    with pytest.raises(TransformError) as raised:
        apply_transform("json_path:$.$ref", "{}")

    assert str(raised.value) == (
        "malformed transform 'json_path:$.$ref': expected a shorthand selector"
    )

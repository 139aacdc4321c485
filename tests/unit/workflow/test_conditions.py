"""Operators of conditions, and what they compare."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evalcore.workflow.conditions import condition_holds, holds
from evalcore.workflow.definition import BlockCondition, ConditionGroup
from evalcore.workflow.events import BlockError
from evalcore.workflow.routing import looker
from evalcore.workflow.values import WorkflowState


def check(output: Any, operator: str, value: Any = None, key: str | None = "x") -> bool:
    condition = BlockCondition.model_construct(eval_key=key, operator=operator, value=value)
    return condition_holds(condition, looker(output, WorkflowState({})))


@pytest.mark.parametrize(
    ("operator", "actual", "value", "expected"),
    [
        ("equals", "high", "high", True),
        ("equals", 5, "5", True),
        ("equals", True, True, True),
        ("equals", True, 1, False),
        ("equals", None, "None", False),
        ("equals", ["a"], ["a"], True),
        ("not_equals", "a", "b", True),
        ("not_equals", "a", "a", False),
        ("contains", "whole text", "le te", True),
        ("contains", ["a", 2], 2, True),
        ("contains", None, "a", False),
        ("not_contains", "abc", "z", True),
        ("starts_with", "abc", "ab", True),
        ("ends_with", "abc", "bc", True),
        ("is_empty", "", None, True),
        ("is_empty", [], None, True),
        ("is_empty", 0, None, False),
        ("not_empty", "a", None, True),
        ("regex", "order 66", r"\d+", True),
        ("regex", None, ".*", False),
        ("eq", "5", 5, True),
        ("neq", 4, 5, True),
        ("neq", None, 5, False),
        ("gt", 5, 4, True),
        ("gt", "many", 5, False),
        ("lt", 4, 5, True),
        ("gte", 5, 5, True),
        ("lte", 6, 5, False),
        ("gt", True, 0, False),
        ("exists", None, None, True),
        ("not_exists", None, None, False),
    ],
)
def test_an_operator(operator: str, actual: Any, value: Any, expected: bool) -> None:
    assert check({"x": actual}, operator, value) is expected


# Patterns that Python's `re` and the `regex` package read differently, and texts they tell apart.
DIALECT: list[tuple[str, list[str]]] = [
    ("(?:foobar){e<=1}", ["fobar", "foobar", "foobar{e<=1}"]),
    ("a{s<=2,i<=1}", ["b", "a", "a{s<=2,i<=1}"]),
    ("a{e<=1:[a-z]}", ["b", "a{e<=1:a}"]),
    ("[[:alpha:]]", ["x", ":]", "a]"]),
    ("[a&&b]", ["a", "&"]),
    (r"^\s$", ["\x1c", " ", "x"]),
    ("(?i)\u0130", ["i", "\u0131"]),
    (r"\N{DIGIT ONE}", ["1", "2"]),
]
REFUSED = [
    r"\p{L}", "(?R)", "(a(?1)?b)", "(?|(a)|(b))", r"\X", r"\K", "(?V1)a", "(?b)a", "(?&n)",
    "(*FAIL)", r"(?<=a+)b", r"\m",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")
@pytest.mark.parametrize(("pattern", "texts"), DIALECT, ids=[row[0] for row in DIALECT])
@pytest.mark.parametrize("padding", ["", "\n" * 200_000], ids=["short", "long"])
def test_patterns_are_those_of_pythons_re(pattern: str, texts: list[str], padding: str) -> None:
    for text in texts:
        expected = re.search(pattern, text + padding) is not None
        assert check({"x": text + padding}, "regex", pattern) is expected


@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_that_are_none_in_python_are_refused(pattern: str) -> None:
    with pytest.raises(BlockError, match="invalid pattern"):
        check({"x": "abc"}, "regex", pattern)


def test_a_missing_value_is_neither_equal_to_a_number_nor_not() -> None:
    assert not check({"y": 1}, "eq", 5)
    assert not check({"y": 1}, "neq", 5)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [("exists", False), ("not_exists", True), ("is_empty", True), ("equals", False), ("gt", False)],
)
def test_what_is_missing(operator: str, expected: bool) -> None:
    assert check({"y": 1}, operator, "a") is expected


@pytest.mark.parametrize(
    ("output", "key"),
    [
        ({"a": {"b": [1, {"c": "here"}]}}, "a.b.1.c"),
        ({"a": {"b": [1, {"c": "here"}]}}, "a.b[1].c"),
        ('{"a": {"b": "here"}}', "a.b"),
        ({"a.b": "here"}, "a.b"),
        ("here", "anything"),
        ("here", None),
    ],
)
def test_where_a_key_leads(output: Any, key: str | None) -> None:
    assert check(output, "equals", "here", key)


def test_a_key_may_name_another_block_or_an_input() -> None:
    state = WorkflowState({"limit": 3})
    state.outputs["score"] = {"words": 3}
    look = looker({"own": 1}, state)

    assert look("score.words") == 3
    assert look("workflow.limit") == 3


def test_a_search_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalcore.workflow.conditions._SEARCH_LIMIT_S", 0.1)
    with pytest.raises(BlockError, match=r"took longer than 0\.1 s"):
        check({"x": "a" * 60 + "b"}, "regex", r"^(a|a|aa)+$")


@pytest.mark.parametrize(
    ("combinator", "values", "expected"),
    [
        ("and", (1, 1), True),
        ("and", (1, 2), False),
        ("or", (2, 1), True),
        ("or", (2, 3), False),
        ("or", (), True),
    ],
)
def test_groups(combinator: str, values: tuple[int, ...], expected: bool) -> None:
    conditions = tuple(BlockCondition(eval_key="x", operator="eq", value=value) for value in values)
    group = ConditionGroup.model_construct(conditions=conditions, combinator=combinator)  # type: ignore[arg-type] # a parameter of the test

    assert holds(group, looker({"x": 1}, WorkflowState({}))) is expected

"""The 21 kinds of conditions on one handle of a block's output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from evalcore.checks.conditions import (
    CONDITION,
    EvalAssertion,
    Handle,
    evaluate_assertion,
)
from evalcore.errors import TargetError
from evalcore.judging.asking import Embedded, JudgeAnswer, JudgeQuestion, JudgeSpec
from evalcore.model.assertion import Verdict

OUTPUTS = TypeAdapter(dict[str, Handle])


class CannedJudges:
    """A judge that always replies the same, and embeddings by the first letter."""

    def __init__(self, reply: Any = None) -> None:
        self.reply = reply

    async def ask(self, spec: JudgeSpec, question: JudgeQuestion) -> JudgeAnswer:
        if self.reply is None:
            raise TargetError("judge", "no judge")
        return JudgeAnswer(json.dumps(self.reply), "judge")

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:
        if self.reply is None:
            raise TargetError("judge", "no embeddings")
        return Embedded(tuple((1.0, float(len(text))) for text in texts))


def read(
    assertion: dict[str, Any],
    outputs: dict[str, Any],
    *,
    judge: Any = None,
    block_error: str | None = None,
) -> tuple[Verdict, Any]:
    return asyncio.run(
        evaluate_assertion(
            EvalAssertion.model_validate(assertion),
            OUTPUTS.validate_python(outputs),
            CannedJudges(judge),
            block_error=block_error,
        )
    )


def outcome(condition: dict[str, Any], value: Any, *, judge: Any = None) -> str:
    reading = read(
        {"target": {"output_handle_id": "output-json-0"}, "condition": condition},
        {"output-json-0": {"type": "json", "data": value}},
        judge=judge,
    )
    code = (reading[0].details or {}).get("code")
    return f"{reading[0].outcome}" + (f" {code}" if code else "")


IOU = {"kind": "split_iou_gte", "expected": {"splits": [{"name": "a", "pages": [1, 2]}]}}
JUDGED = {"kind": "llm_judged_as", "rubric": "polite"}
NUMBERS = {
    "kind": "all_items_match",
    "condition": {"kind": "number_compare", "op": "gt", "expected": 0},
}


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ({"kind": "equals", "expected": 1}, 1.0, "passed"),
        ({"kind": "equals", "expected": 0}, False, "failed"),
        ({"kind": "equals", "expected": [1, 2]}, [2, 1], "failed"),
        ({"kind": "equals", "expected": {"a": [True]}}, {"a": [1]}, "failed"),
        ({"kind": "not_equals", "expected": {"reasoning___x": 1}}, {}, "failed"),
        ({"kind": "contains", "expected": 1}, [True], "failed"),
        ({"kind": "contains", "expected": 1}, "1", "blocked type_error"),
        ({"kind": "not_contains", "expected": "A"}, "a", "passed"),
        ({"kind": "number_compare", "op": "eq", "expected": 3}, "3", "blocked type_error"),
        ({"kind": "between", "lower": 3, "upper": 5, "inclusive": False}, 3, "failed"),
        ({"kind": "starts_with", "expected": "a"}, ["a"], "blocked type_error"),
        ({"kind": "matches_regex", "pattern": "a|ab"}, "ab", "passed"),
        ({"kind": "matches_regex", "pattern": "a"}, 1, "blocked type_error"),
        (
            {"kind": "object_contains", "expected": {"a": {"b": 1}}},
            {"a": {"b": 1, "c": 2}},
            "passed",
        ),
        ({"kind": "object_contains", "expected": {"a": None}}, {}, "failed"),
        ({"kind": "object_contains", "expected": {}}, [], "blocked type_error"),
        ({"kind": "array_contains", "expected": 2}, [1, 2], "passed"),
        ({"kind": "array_contains", "expected": {}}, {}, "blocked type_error"),
        ({"kind": "length_compare", "op": "eq", "expected": 1}, {"a": 1}, "passed"),
        ({"kind": "length_compare", "op": "eq", "expected": 1}, 1, "blocked type_error"),
        ({"kind": "json_schema_valid", "schema": {"type": "nothing"}}, 1, "blocked schema_invalid"),
        (
            {"kind": "json_schema_valid", "schema": {"$ref": "http://x"}},
            1,
            "blocked schema_invalid",
        ),
        (NUMBERS, [], "passed"),
        (NUMBERS, [1, "x", 0], "failed"),
        (NUMBERS, [1, "x"], "blocked type_error"),
        (NUMBERS, {}, "blocked type_error"),
        ({**NUMBERS, "kind": "any_item_matches"}, [], "failed"),
        ({**NUMBERS, "kind": "any_item_matches"}, ["x", 1], "passed"),
        ({**NUMBERS, "kind": "any_item_matches"}, ["x", 0], "blocked type_error"),
        ({"kind": "similarity_gte", "reference": "", "threshold": 1}, "", "passed"),
        ({"kind": "similarity_gte", "reference": "abcd", "threshold": 0.75}, "abcx", "passed"),
        ({"kind": "similarity_gte", "reference": "abcd", "threshold": 0.76}, "abcx", "failed"),
        (
            {"kind": "similarity_gte", "reference": "a", "threshold": 1, "method": "embeddings"},
            "a",
            "blocked judge_unavailable",
        ),
        (JUDGED, "x", "blocked judge_unavailable"),
        (IOU, {"splits": [{"name": "a", "pages": [1, 2]}]}, "passed"),
        (IOU, [{"name": "a", "pages": [2, 1, 1], "more": 1}], "passed"),
        (IOU, [{"name": "a", "pages": [1]}], "failed"),
        ({**IOU, "threshold": 0.5}, [{"name": "a", "pages": [1]}], "passed"),
        (IOU, "a", "blocked type_error"),
        ({"kind": "equals", "expected": None}, None, "passed"),
        ({"kind": "equals", "expected": 1}, "1", "failed"),
        ({"kind": "equals", "expected": "é"}, "e\u0301", "failed"),
        ({"kind": "equals", "expected": {"a": {"reasoning___b": 1}}}, {"a": {}}, "passed"),
        ({"kind": "contains", "expected": {"a": 1}}, [{"a": 1.0}], "passed"),
        ({"kind": "contains", "expected": ""}, "", "passed"),
        ({"kind": "contains", "expected": None}, [], "failed"),
        ({"kind": "not_contains", "expected": 1}, [True, "1"], "passed"),
        ({"kind": "number_compare", "op": "eq", "expected": 2**53 + 1}, 2**53 + 1, "passed"),
        ({"kind": "number_compare", "op": "eq", "expected": 2**53 + 1}, 2**53, "failed"),
        ({"kind": "number_compare", "op": "lte", "expected": 0}, -0.0, "passed"),
        ({"kind": "between", "lower": 2**53 + 1, "upper": 2**53 + 1}, 2**53, "failed"),
        ({"kind": "between", "lower": 0, "upper": 1}, True, "blocked type_error"),
        ({"kind": "ends_with", "expected": "🙂"}, "x🙂", "passed"),
        ({"kind": "matches_regex", "pattern": "a.c"}, "a\nc", "failed"),
        ({"kind": "matches_regex", "pattern": "(?i)inv-\\d+"}, "INV-7", "passed"),
        ({"kind": "matches_regex", "pattern": "a$"}, "a\n", "failed"),
        ({"kind": "matches_regex", "pattern": "(?P<x"}, "a", "blocked invalid_regex"),
        ({"kind": "object_contains", "expected": {"reasoning___a": 1}}, {}, "passed"),
        ({"kind": "object_contains", "expected": {"a": [1]}}, {"a": [1, 2]}, "failed"),
        ({"kind": "array_contains", "expected": {"a": 1}}, ["a", {"a": 1, "b": 2}], "passed"),
        ({"kind": "array_contains", "expected": {"a": 1}}, [{"a": True}], "failed"),
        ({"kind": "length_compare", "op": "eq", "expected": 1}, "🙂", "passed"),
        ({"kind": "json_schema_valid", "schema": True}, None, "passed"),
        ({"kind": "json_schema_valid", "schema": {"type": "integer"}}, True, "failed"),
        ({"kind": "json_schema_valid", "schema": {"pattern": "("}}, "a", "blocked schema_invalid"),
        ({"kind": "similarity_gte", "reference": "é", "threshold": 1}, "e", "failed"),
        ({"kind": "similarity_gte", "reference": "a", "threshold": 0}, "", "passed"),
        (IOU, [], "failed"),
        ({**IOU, "expected": {"splits": []}}, [], "passed"),
        (IOU, [{"name": "a", "pages": ["1"]}], "blocked type_error"),
    ],
    ids=str,
)
def test_a_condition_on_a_value(condition: dict[str, Any], value: Any, expected: str) -> None:
    assert outcome(condition, value) == expected


@pytest.mark.parametrize(
    ("kind", "label", "expected"),
    [
        ("llm_judged_as", "Yes ", "passed"),
        ("llm_judged_as", "no", "failed"),
        ("llm_judged_as", "maybe", "blocked judge_unavailable"),
        ("llm_not_judged_as", "no", "passed"),
        ("llm_not_judged_as", "YES", "failed"),
        ("llm_not_judged_as", "maybe", "blocked judge_unavailable"),
    ],
)
def test_a_judge_chooses_one_of_the_labels(kind: str, label: str, expected: str) -> None:
    condition = {"kind": kind, "rubric": "polite"}
    assert outcome(condition, "hello", judge={"label": label}) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("items.0.price", "passed"),
        ("items[0].price", "passed"),
        ('["a.b"]', "passed"),
        ("items[*].price", "failed"),
        ("items[5].price", "blocked path_unresolved"),
        ("items.price", "blocked type_error"),
        ("missing.price", "blocked path_unresolved"),
        ("none.price", "blocked path_unresolved"),
        ("items[-1].price", "blocked path_unresolved"),
        ("empty[*].price", "failed"),
        ("items.*", "failed"),
        ("items[99999999999999999999].price", "blocked path_unresolved"),
    ],
)
def test_a_path_addresses_a_value(path: str, expected: str) -> None:
    payload = {"items": [{"price": 2}, {"price": 3}], "a.b": 2, "none": None, "empty": []}
    reading = read(
        {
            "target": {"output_handle_id": "h", "path": path},
            "condition": {"kind": "equals", "expected": 2},
        },
        {"h": {"type": "json", "data": payload}},
    )
    code = (reading[0].details or {}).get("code")
    assert f"{reading[0].outcome}" + (f" {code}" if code else "") == expected


@pytest.mark.parametrize(("kind", "expected"), [("exists", "failed"), ("not_exists", "passed")])
@pytest.mark.parametrize(
    "target", [{"output_handle_id": "none"}, {"output_handle_id": "h", "path": "a.b.c"}]
)
def test_presence_is_never_blocked(kind: str, expected: str, target: dict[str, Any]) -> None:
    reading = read(
        {"target": target, "condition": {"kind": kind}}, {"h": {"type": "json", "data": {"a": 1}}}
    )
    assert reading[0].outcome == expected


def test_a_path_that_stops_says_how_far_it_came() -> None:
    reading = read(
        {
            "target": {"output_handle_id": "h", "path": "a.b[0].c"},
            "condition": {"kind": "equals", "expected": 1},
        },
        {"h": {"type": "json", "data": {"a": {"b": [7]}}}},
    )
    details = reading[0].details or {}
    assert (details["partial_path"], details["partial_value"]) == ("a.b[0]", 7)


@pytest.mark.parametrize(
    "condition",
    [
        {"kind": "equal", "expected": 1},
        {"kind": "equals", "expected": 1, "more": 1},
        {"kind": "number_compare", "op": "=", "expected": 1},
        {"kind": "all_items_match", "condition": {"kind": "none"}},
        {"kind": "similarity_gte", "reference": "a", "threshold": 2},
    ],
    ids=str,
)
def test_a_condition_that_is_not_one_is_refused(condition: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CONDITION.validate_python(condition)


@pytest.mark.parametrize(
    ("condition", "asks"),
    [
        (JUDGED, "judge"),
        ({"kind": "all_items_match", "condition": JUDGED}, "judge"),
        (
            {"kind": "any_item_matches", "condition": {**NUMBERS, "condition": JUDGED}},
            "judge",
        ),
        ({"kind": "similarity_gte", "reference": "a", "threshold": 1}, None),
        (
            {
                "kind": "any_item_matches",
                "condition": {
                    "kind": "similarity_gte",
                    "reference": "a",
                    "threshold": 1,
                    "method": "embeddings",
                },
            },
            "embeddings",
        ),
        (NUMBERS, None),
    ],
    ids=str,
)
def test_a_condition_says_what_it_asks(condition: dict[str, Any], asks: str | None) -> None:
    assert CONDITION.validate_python(condition).asks == asks


@pytest.mark.parametrize("path", ["a..b", "a.", ".a", "a[", "a[x]", "a]b", "[0]x"])
def test_a_text_that_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="path"):
        EvalAssertion.model_validate(
            {"target": {"output_handle_id": "h", "path": path}, "condition": {"kind": "exists"}}
        )

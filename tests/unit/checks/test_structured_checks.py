"""Checks that look at structure: tool calls, fields, measures together, several checks as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.grading import grade
from evalcore.errors import LoadError
from evalcore.execution.item import run_inline
from evalcore.formats.single_assertions import read_single
from evalcore.model.assertion import AssertionResult, Outcome
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.suite import Case, Format
from tests.unit.checks.checking import BLOCKED, ERROR, FAILED, PASSED, context

EXPECTED: dict[str, Any] = {"invoice": {"total": 100.0, "date": "2025-03-01"}, "vendor": "Acme"}


def graded(
    written: dict[str, Any],
    output: str = "",
    *,
    case: Case | None = None,
    details: dict[str, Any] | None = None,
    metrics: Metrics = UNMEASURED,
) -> AssertionResult:
    assertion = read_single(Format.TEST_FILE, written, Path())
    evidence = Evidence(output, metrics=metrics, details=details or {})
    (result,) = run_inline(grade([assertion], evidence, case or Case("case"), context()))
    return result


def mistake(written: dict[str, Any]) -> str:
    with pytest.raises(LoadError) as error:
        read_single(Format.TEST_FILE, written, Path())
    return str(error.value)


def made(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    tool_calls = [{"tool": name, "input": arguments} for name, arguments in calls]
    return {"messages": [{"role": "assistant", "content": "", "tool_calls": tool_calls}]}


SEARCH, BOOK = ("search", {"city": "Rome", "stars": 4}), ("book", {"id": 7})


@pytest.mark.parametrize(
    ("mode", "expected", "calls", "score"),
    [
        ("any_order", ["book", "search"], [SEARCH, BOOK], 1.0),
        ("any_order", ["search", "search"], [SEARCH, BOOK], 0.5),
        ("in_order", ["search", "book"], [SEARCH, ("log", {}), BOOK], 1.0),
        ("in_order", ["book", "search"], [SEARCH, BOOK], 0.5),
        ("exact", ["search", "book"], [SEARCH, BOOK], 1.0),
        ("exact", ["search"], [SEARCH, BOOK], 0.5),
        ("superset", ["search"], [SEARCH, BOOK], 1.0),
        ("subset", ["search", "book"], [SEARCH, SEARCH], 1.0),
        ("subset", ["search"], [SEARCH, BOOK], 0.5),
        ("subset", ["search"], [], 1.0),
        ("exact", [], [], 1.0),
        ("any_order", [], [SEARCH], 1.0),
    ],
)
def test_the_score_of_a_trajectory_is_the_share_of_calls_that_match(
    mode: str, expected: list[str], calls: list[tuple[str, dict[str, Any]]], score: float
) -> None:
    written = {"type": "tool-trajectory", "mode": mode, "expected": [{"tool": t} for t in expected]}
    result = graded(written, details=made(*calls))
    assert result.score == score
    assert result.outcome is (PASSED if score >= 0.8 else FAILED)


@pytest.mark.parametrize(
    ("mode", "expected", "calls", "reason"),
    [
        ("any_order", ["search", "search"], [SEARCH], "search is not called often enough"),
        ("any_order", ["search"] * 3, [SEARCH, SEARCH], "search is not called often enough"),
        ("superset", ["pay"], [SEARCH], "pay is not called"),
        ("in_order", ["book", "search"], [SEARCH, BOOK], "search is not called in this order"),
        ("exact", ["book", "search"], [SEARCH, BOOK], "search is not called as call 2"),
        ("exact", ["search"], [SEARCH, BOOK], "book is not expected"),
        ("subset", ["search"], [SEARCH, BOOK], "book is not expected"),
        ("exact", [{"tool": "book", "args": {"id": 8}}], [BOOK], "is called with other arguments"),
    ],
)
def test_the_reason_of_a_trajectory_says_what_is_not_so(
    mode: str, expected: list[Any], calls: list[tuple[str, dict[str, Any]]], reason: str
) -> None:
    listed = [each if isinstance(each, dict) else {"tool": each} for each in expected]
    written = {"type": "tool-trajectory", "mode": mode, "expected": listed}
    assert graded(written, details=made(*calls)).message.endswith(reason)


@pytest.mark.parametrize(
    ("how", "args", "matches"),
    [
        ("superset", {"city": "Rome"}, True),
        ("superset", {"city": "Rome", "pool": True}, False),
        ("subset", {"city": "Rome", "stars": 4, "pool": True}, True),
        ("subset", {"city": "Rome"}, False),
        ("exact", {"city": "Rome", "stars": 4}, True),
        ("exact", {"city": "Rome"}, False),
        ("ignore", {"city": "Oslo"}, True),
        (["stars"], {"city": "Oslo", "stars": 4}, True),
        (["city"], {"city": "Oslo", "stars": 4}, False),
        (["city"], {"stars": 4}, False),
    ],
)
def test_arguments_are_compared_as_the_call_or_the_assertion_says(
    how: Any, args: dict[str, Any], matches: bool
) -> None:
    of_call = {"tool": "search", "args": args, "args_match": how}
    of_all = {"tool": "search", "args": args}
    for keys in ({"expected": [of_call]}, {"expected": [of_all], "args_match": how}):
        result = graded({"type": "tool-trajectory", "mode": "exact", **keys}, details=made(SEARCH))
        assert (result.outcome is PASSED) is matches


def test_arguments_that_a_model_wrote_as_json_are_read() -> None:
    call = {"function": {"name": "search", "arguments": '{"city": "Rome"}'}}
    details = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    expected = [{"tool": "search", "args": {"city": "Rome"}, "args_match": "exact"}]
    written = {"type": "tool-trajectory", "mode": "exact", "expected": expected}
    assert graded(written, details=details).outcome is PASSED


@pytest.mark.parametrize(("most_ms", "outcome"), [(100, PASSED), (50, FAILED)])
def test_a_call_may_be_bounded_in_time(most_ms: float, outcome: Outcome) -> None:
    call = {"tool": "search", "input": {}, "duration_ms": 80}
    details = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    expected = [{"tool": "search", "max_duration_ms": most_ms}]
    written = {"type": "tool-trajectory", "mode": "in_order", "expected": expected}
    assert graded(written, details=details).outcome is outcome


@pytest.mark.parametrize(("least", "score"), [(1, 1.0), (2, 0.0)])
def test_minimums_count_the_calls_of_a_tool(least: int, score: float) -> None:
    written = {"type": "tool-trajectory", "mode": "any_order", "minimums": {"search": least}}
    assert graded(written, details=made(SEARCH, BOOK)).score == score


def test_a_trajectory_that_was_not_reported_is_blocked() -> None:
    written = {"type": "tool-trajectory", "mode": "exact", "expected": []}
    assert graded(written, "an answer").outcome is BLOCKED


@pytest.mark.parametrize(
    ("keys", "fact"),
    [
        ({"mode": "exact", "minimums": {"a": 1}}, "'minimums' belong to the mode any_order"),
        ({"mode": "exact"}, "mode exact needs 'expected'"),
        ({"mode": "any_order"}, "needs 'minimums' or 'expected'"),
        ({"mode": "exact", "expected": [], "args_match": "some"}, "'args_match' is one of"),
        ({"mode": "exact", "expected": [{"tool": "a", "args": 3}]}, "'args' is a mapping"),
    ],
)
def test_a_trajectory_that_cannot_be_compared_is_refused(keys: dict[str, Any], fact: str) -> None:
    assert fact in mistake({"type": "tool-trajectory", **keys})


@pytest.mark.parametrize(
    ("field", "value", "agrees"),
    [
        ({"path": "invoice.total"}, 100, True),
        ({"path": "invoice.total"}, 101, False),
        ({"path": "invoice.total", "match": "numeric-tolerance", "tolerance": 1}, 102, False),
        (
            {"path": "invoice.total", "match": "numeric_tolerance", "tolerance": 0.1}
            | {"relative": True},
            "109.5",
            True,
        ),
        ({"path": "invoice.total", "match": "numeric_tolerance"}, True, False),
        ({"path": "invoice.date", "match": "date"}, "01-MAR-2025", True),
        ({"path": "invoice.date", "match": "date"}, "03/01/2025", True),
        ({"path": "invoice.date", "match": "date", "formats": ["DD/MM/YYYY"]}, "01/03/2025", True),
        ({"path": "invoice.date", "match": "date"}, "2025-03-02", False),
        ({"path": "invoice.date", "match": "date"}, 20250301, False),
    ],
)
def test_a_field_agrees_as_its_match_says(field: dict[str, Any], value: Any, agrees: bool) -> None:
    key = field["path"].split(".")[1]
    output = json.dumps({"invoice": {**EXPECTED["invoice"], key: value}})
    case = Case("case", expected_output=EXPECTED)
    result = graded({"type": "field-accuracy", "fields": [field]}, output, case=case)
    assert (result.outcome is PASSED) is agrees


FIELDS = [{"path": "vendor", "weight": 3}, {"path": "invoice.total"}]


@pytest.mark.parametrize(
    ("keys", "output", "score"),
    [
        ({}, {"vendor": "Acme", "invoice": {"total": 1}}, 0.75),
        ({"aggregation": "all_or_nothing"}, {"vendor": "Acme", "invoice": {"total": 1}}, 0.0),
        ({"aggregation": "all_or_nothing"}, {"vendor": "Acme", "invoice": {"total": 100}}, 1.0),
        ({}, {"vendor": "Acme"}, 0.75),
    ],
)
def test_the_score_of_fields_is_their_weighted_share(
    keys: dict[str, Any], output: dict[str, Any], score: float
) -> None:
    written = {"type": "field-accuracy", "fields": FIELDS, **keys}
    fenced = f"```json\n{json.dumps(output)}\n```"
    for text in (json.dumps(output), fenced):
        assert graded(written, text, case=Case("c", expected_output=EXPECTED)).score == score


def test_an_optional_field_that_is_not_there_is_not_compared() -> None:
    fields = [{"path": "vendor"}, {"path": "invoice.total", "required": False}]
    case = Case("case", expected_output=json.dumps(EXPECTED))
    result = graded({"type": "field-accuracy", "fields": fields}, '{"vendor": "Acme"}', case=case)
    assert result.score == 1.0


@pytest.mark.parametrize(
    ("expected_output", "output", "outcome"),
    [
        ("no object", "{}", ERROR),
        (EXPECTED, "no object", FAILED),
        (EXPECTED, "[1, 2", FAILED),
        ({"other": 1}, "{}", ERROR),
        ([{"role": "assistant", "content": '{"vendor": "Acme"}'}], '{"vendor": "Acme"}', PASSED),
    ],
)
def test_fields_that_cannot_be_compared_are_no_pass(
    expected_output: Any, output: str, outcome: Outcome
) -> None:
    written = {"type": "field-accuracy", "fields": [{"path": "vendor"}]}
    case = Case("case", expected_output=expected_output)
    assert graded(written, output, case=case).outcome is outcome


@pytest.mark.parametrize("negate", [False, True])
def test_fields_without_weight_measure_nothing(negate: bool) -> None:
    fields = [{"path": "vendor", "weight": 0}]
    written = {"type": "field-accuracy", "fields": fields, "threshold": 0, "negate": negate}
    case = Case("case", expected_output=EXPECTED)
    for output in ('{"vendor": "Acme"}', "no object"):
        assert graded(written, output, case=case).outcome is FAILED


MEASURES = Metrics(latency_ms=900.0, cost_usd=0.02, input_tokens=60, output_tokens=40)
TRACE = {**made(("read_file", {}), ("searchDocs", {}), ("write", {})), "calls": [{}, {}]}


@pytest.mark.parametrize(
    ("maxima", "score"),
    [
        ({"max_tool_calls": 3, "max_llm_calls": 2, "max_tokens": 100}, 1.0),
        ({"max_cost_usd": 0.01, "max_duration_ms": 1000}, 0.5),
        ({"max_duration_ms": 899.9999999}, 1.0),
        ({"max_duration_ms": 899.9999}, 0.0),
        ({"target_exploration_ratio": 0.5}, 1.0),
        ({"target_exploration_ratio": 0.5, "exploration_tolerance": 0.1}, 0.0),
    ],
)
def test_the_score_of_maxima_is_the_share_that_is_kept(
    maxima: dict[str, float], score: float
) -> None:
    written = {"type": "execution-metrics", **maxima}
    assert graded(written, details=TRACE, metrics=MEASURES).score == score


def test_a_measure_that_was_not_taken_blocks_the_maxima() -> None:
    result = graded({"type": "execution-metrics", "max_tokens": 5, "max_cost_usd": 1})
    assert result.outcome is BLOCKED
    assert "max_tokens, max_cost_usd" in result.message


def test_maxima_without_any_are_refused() -> None:
    assert "at least one maximum" in mistake({"type": "execution-metrics", "threshold": 1})


def member(word: str, **keys: Any) -> dict[str, Any]:
    return {"type": "contains", "value": word, "name": word, **keys}


@pytest.mark.parametrize(
    ("keys", "score"),
    [
        ({}, 0.5),
        ({"aggregator": "weighted_average"}, 0.5),
        ({"aggregator": {"type": "weighted-average", "weights": {"red": 3}}}, 0.75),
        ({"aggregator": {"type": "threshold", "threshold": 0.5}}, 0.5),
        ({"aggregator": "minimum"}, 0.0),
    ],
)
def test_the_aggregator_makes_one_score_of_the_members(keys: dict[str, Any], score: float) -> None:
    members = [member("red"), member("blue")]
    result = graded({"type": "composite", "assertions": members, **keys}, "a red rose")
    assert result.score == score
    assert [each["name"] for each in (result.details or {})["scores"]] == ["red", "blue"]


def test_a_composite_whose_members_all_passed_says_their_scores() -> None:
    half = {"type": "composite", "name": "half", "assertions": [member("red"), member("blue")]}
    members = [{**half, "threshold": 0.5}, member("rose")]
    result = graded({"type": "composite", "threshold": 0.9, "members": members}, "a red rose")
    assert result.outcome is FAILED
    assert result.message.startswith("score 0.75 < 0.9; half 0.5: blue 0: ")
    assert result.message.endswith("; rose 1")


def test_a_required_member_that_fails_fails_the_composite() -> None:
    members = [member("red"), member("blue", required=True, weight=0)]
    result = graded({"type": "composite", "evaluators": members}, "a red rose")
    assert (result.outcome, result.score) == (FAILED, 1.0)
    assert "required and not met: blue" in result.message


@pytest.mark.parametrize(
    ("inner", "outcome"),
    [
        ({"type": "latency", "threshold": 5}, BLOCKED),
        ({"type": "field-accuracy", "fields": [{"path": "a"}]}, ERROR),
    ],
)
def test_a_member_without_a_verdict_leaves_the_composite_without_one(
    inner: dict[str, Any], outcome: Outcome
) -> None:
    result = graded({"type": "composite", "assertions": [member("red"), inner]}, "red")
    assert result.outcome is outcome


@pytest.mark.parametrize(
    ("keys", "fact"),
    [
        ({}, "'assertions'"),
        ({"assertions": [member("a")], "members": [member("b")]}, "'assertions'"),
        ({"assertions": [member("a"), member("a")]}, "two members are called 'a'"),
        ({"assertions": [member("a")], "aggregator": "media"}, "unknown type 'media'"),
        ({"assertions": [member("a")], "aggregator": {"type": "media"}}, "'media'"),
        ({"assertions": [member("a")], "aggregator": "threshold"}, "needs 'threshold'"),
        ({"assertions": [member("a")], "aggregator": {"type": "code-grader"}}, "needs 'command'"),
        (
            {
                "assertions": [member("a")],
                "aggregator": {"type": "weighted_average", "weights": {"b": 1}},
            },
            "no member is called 'b'",
        ),
    ],
)
def test_a_composite_that_has_no_one_score_is_refused(keys: dict[str, Any], fact: str) -> None:
    assert fact in mistake({"type": "composite", **keys})


@pytest.mark.parametrize(
    ("call", "used"),
    [
        ({"tool": "Skill", "input": {"skill": "acme:deploy"}}, True),
        ({"tool": "Skill", "input": {"skill": "review"}}, False),
        ({"tool": "Read", "input": {"file_path": "/w/.claude/skills/deploy/SKILL.md"}}, True),
        ({"tool": "Read File", "input": {"path": ".agents/skills/deploy/x.md"}}, True),
        ({"tool": "Write", "input": {"file_path": ".agents/skills/deploy/x.md"}}, False),
        ({"tool": "bash", "output": {"stdout": "see skills/deploy/SKILL.md"}}, True),
    ],
)
def test_a_skill_is_used_by_its_tool_its_files_or_what_names_them(
    call: dict[str, Any], used: bool
) -> None:
    details = {"messages": [{"role": "assistant", "content": "", "tool_calls": [call]}]}
    written = {"type": "skill-trigger", "skill": "deploy"}

    assert graded(written, details=details).outcome is (PASSED if used else FAILED)
    left_alone = graded({**written, "should_trigger": False}, details=details)
    assert left_alone.outcome is (FAILED if used else PASSED)
    assert graded(written).outcome is BLOCKED

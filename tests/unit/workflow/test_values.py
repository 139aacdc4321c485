"""References, paths and prompt templates."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.workflow.events import BlockError
from evalcore.workflow.values import (
    MISSING,
    WorkflowState,
    fill,
    parsed,
    text_of,
)


@pytest.fixture
def state() -> WorkflowState:
    known = WorkflowState({"topic": "tides", "n": 3, "deep": {"a": [1, 2]}})
    known.outputs.update(
        {
            "score": {"words": 5, "tags": ["x", "y"]},
            "draft": '{"title": "Tides", "n": null}',
            "note": "plain",
            "publish": {"summary": "short"},
            "publish.summary": "short",
        }
    )
    known.shared["previous_round_context"] = {"score": 1}
    known.shared["__error__flaky"] = {"type": "ValueError", "message": "boom"}
    return known


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("score", {"words": 5, "tags": ["x", "y"]}),
        ("score.words", 5),
        ("score.tags.1", "y"),
        ("score.tags[1]", "y"),
        ("draft.title", "Tides"),
        ("note.output", "plain"),
        ("draft.output", MISSING),
        ("publish.summary", "short"),
        ("workflow.topic", "tides"),
        ("workflow.deep.a[0]", 1),
        ("previous_round_context.score", 1),
        ("__error__flaky.message", "boom"),
        ("flaky.error.message", "boom"),
        ("score.nothing", MISSING),
        ("nobody", MISSING),
    ],
)
def test_a_reference(state: WorkflowState, path: str, value: Any) -> None:
    assert state.find(path) == value


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("On {topic}: {score.words} words", "On tides: 5 words"),
        ("{mine} before {topic}", "own before tides"),
        ("{score}", '{"words": 5, "tags": ["x", "y"]}'),
        ("{{topic}} is literal, so is {{", "{topic} is literal, so is {"),
        ('{"queries": [1]} and { } stay', '{"queries": [1]} and { } stay'),
        ("{publish.summary}", "short"),
        ("{deep.a[1]}", "2"),
    ],
)
def test_a_template(state: WorkflowState, template: str, text: str) -> None:
    assert fill(template, {"mine": "own"}, state, where="prompt_template") == text


def test_a_value_is_not_a_template_again(state: WorkflowState) -> None:
    assert fill("{mine}", {"mine": "{topic}"}, state, where="t") == "{topic}"


def test_an_unknown_placeholder_is_named(state: WorkflowState) -> None:
    with pytest.raises(BlockError, match=r"prompt_template: unknown placeholder \{topik\}; known:"):
        fill("About {topik}", {}, state, where="prompt_template")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        ({"ö": 1}, '{"ö": 1}'),
        ([1, True, None], "[1, true, null]"),
        (5, "5"),
        (False, "false"),
    ],
)
def test_the_text_of_a_value(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n": 18446744073709551615}', {"n": 2**64 - 1}),
        ('{"n": "1180591620717411303424"}', {"n": str(2**70)}),
        ('{"n": 1180591620717411303424.0}', {"n": float(2**70)}),
    ],
)
def test_a_text_of_json_is_read_exactly(text: str, value: Any) -> None:
    assert parsed(text) == value


@pytest.mark.parametrize("digits", [str(2**64), str(-(2**70)), "1" + "0" * 5000], ids=len)
def test_a_text_with_an_integer_of_more_than_64_bits_stays_text(digits: str) -> None:
    text = f'{{"n": [{digits}]}}'
    assert parsed(text) == text

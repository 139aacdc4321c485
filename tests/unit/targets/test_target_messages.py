from __future__ import annotations

from typing import Any

import pytest

from evalcore.targets.work import json_text, messages_of, prompt_of

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("case_input", "messages"),
    [
        ("hi", (USER,)),
        ("", ({"role": "user", "content": ""},)),
        ({"b": 1, "a": "ü"}, ({"role": "user", "content": '{"b": 1, "a": "ü"}'},)),
        ([{"role": "system", "content": "s"}, USER], ({"role": "system", "content": "s"}, USER)),
        (7, ({"role": "user", "content": "7"},)),
        (None, ()),
        (
            [{"role": "tool", "content": "42", "tool_call_id": "c1"}],
            ({"role": "tool", "content": "42", "tool_call_id": "c1"},),
        ),
    ],
    ids=["string", "empty string", "object", "messages", "number", "nothing", "further keys"],
)
def test_input_becomes_messages(case_input: Any, messages: Any) -> None:
    assert messages_of(case_input) == messages


@pytest.mark.parametrize(
    ("case_input", "problem"),
    [
        ([], "must not be empty"),
        (["hi"], "message 0: it must be a mapping"),
        ([USER, {"role": "robot", "content": "x"}], "message 1: role must be one of"),
        ([{"role": ["user"], "content": "x"}], "role must be one of"),
        ([{"role": "user"}], "content must be a string or a list"),
        ([{"role": "user", "content": []}], "content must be a string or a list"),
        ([{"role": "user", "content": [{"type": "pdf", "value": "x"}]}], r"content\[0\]\.type"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"content\[0\]\.value"),
    ],
)
def test_misshapen_message_is_named(case_input: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        messages_of(case_input)


def test_prompt_is_the_last_user_message() -> None:
    last = {"role": "user", "content": "last"}
    assert prompt_of((USER, last, {"role": "assistant", "content": "a"})) == "last"


def test_prompt_without_a_user_message_is_empty() -> None:
    assert prompt_of(({"role": "system", "content": "s"},)) == ""


def test_segments_stand_on_lines_of_their_own() -> None:
    segments = [{"type": "text", "value": "see"}, {"type": "file", "value": "a.md"}]
    assert prompt_of(({"role": "user", "content": segments},)) == "see\n[file: a.md]"


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}], ids=["nan", "object"])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        json_text(value)

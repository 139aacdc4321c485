"""Calls and events of an item: from kept evidence, from recordings, as a timeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.viewer.views.case import MOST_EVENTS, timeline_of
from evalcore.viewer.views.texts import TextBudget
from evalcore.workflow.events import Event
from tests.support.model_server import SERVER_ERROR, model_server
from tests.support.model_wire import Answer, Question
from tests.support.viewer import run_suite, viewer

SECRET = "sk-abcdefghijklmnopqrstuvwx1234"
LOOK_UP = ({"id": "call_1", "name": "look_up", "arguments": {"order": 4711}},)


def answer(_: Question) -> Answer:
    return Answer("Let me look it up.", LOOK_UP)


def suite(base_url: str, **options: Any) -> dict[str, Any]:
    target = {"name": "t", "provider": "openai", "model": "m", "base_url": base_url}
    return {
        "name": "traced",
        "targets": [target],
        "execution": {"target": "t"},
        "evalcore": options,
        "tests": [
            {
                "id": "x",
                "input": f"Where is my order {SECRET}?",
                "assertions": [{"type": "contains", "value": "look"}],
            }
        ],
    }


def trace(folder: Path, run: str) -> str:
    with viewer(folder / "store") as client:
        page = client.get(f"/runs/{run}/cases/x")
        assert page.status_code == 200
        return page.text.split('id="trace-title"')[1]


@pytest.mark.parametrize(
    "options", [{}, {"evidence": "full"}], ids=["by default", "as the suite says"]
)
def test_kept_messages_of_a_live_run_are_shown_with_tool_calls_and_retries(
    tmp_path: Path, options: dict[str, str]
) -> None:
    with model_server(script=answer, failures=[SERVER_ERROR]) as server:
        run = run_suite(tmp_path, suite(server.base_url, **options))
    text = trace(tmp_path, run)
    assert "Where is my order [redacted]?" in text
    assert "Let me look it up." in text
    assert "calls <code>look_up</code>" in text
    assert "4711" in text
    assert "attempt 1: server" in text
    assert "2 attempts" in text
    assert SECRET not in text


@pytest.mark.parametrize("mode", ["record", "replay"])
def test_messages_of_a_recorded_call_are_those_of_its_recording(tmp_path: Path, mode: str) -> None:
    with model_server(script=answer) as server:
        document = suite(server.base_url, evidence="answers")
        run = run_suite(tmp_path, document, "--mode", "record")
        if mode == "replay":
            run = run_suite(tmp_path, document, "--mode", "replay")
    text = trace(tmp_path, run)
    assert "Where is my order" in text
    assert "calls <code>look_up</code>" in text
    assert "evalcore recordings show" in text
    assert ("replayed" in text) == (mode == "replay")


def test_a_live_run_without_messages_says_how_to_keep_them(tmp_path: Path) -> None:
    with model_server() as server:
        run = run_suite(tmp_path, suite(server.base_url, evidence="answers"))
    text = trace(tmp_path, run)
    assert "evidence: full" in text
    assert "Where is my order" not in text


def test_messages_that_are_too_large_are_left_out_with_their_size(tmp_path: Path) -> None:
    document = suite("")
    with model_server() as server:
        document["targets"][0]["base_url"] = server.base_url
        document["tests"][0]["input"] = "Where is my order? " * 70_000
        run = run_suite(tmp_path, document)
    text = trace(tmp_path, run)
    assert "too large to be kept with the item" in text
    assert "Sent" not in text


def test_a_recording_that_was_deleted_is_said_to_be_gone(tmp_path: Path) -> None:
    with model_server(script=answer) as server:
        run = run_suite(tmp_path, suite(server.base_url, evidence="answers"), "--mode", "record")
    for path in (tmp_path / "store" / "recordings").glob("*/*"):
        path.unlink()
    assert "is not in the store any more" in trace(tmp_path, run)


def test_calls_of_any_shape_that_a_python_target_lists_are_shown(tmp_path: Path) -> None:
    calls = [
        {"provider": 5, "latency_ms": "slow", "recording": "../../../x", "retries": [{}, 3]},
        {"request": {"continues": "x", "messages": {"a": 1}, "parameters": [1]}, "reply": [1]},
        {"request": {"messages": [{"content": 5}]}, "reply": {"text": {}, "tool_calls": 5}},
        "no call",
    ]
    details = {"calls": calls, "file_changes": [{}], "errors": "x", "state": {"<b>": "<i>"}}
    (tmp_path / "answering.py").write_text(
        "import json\nfrom evalcore.model.evidence import Evidence\n"
        f"def answer(_):\n    return Evidence('yes', details=json.loads({json.dumps(details)!r}))\n"
    )
    (tmp_path / "targets.yaml").write_text(
        "targets: [{name: t, provider: python, callable: 'answering:answer'}]"
    )
    document = suite("") | {"evalcore": {"evidence": "full"}}
    del document["targets"]
    text = trace(tmp_path, run_suite(tmp_path, document))
    assert text.count('class="exchange"') == 3
    assert "<b>" not in text.split("State at the end")[1].split("</details>")[0]


def test_a_block_has_a_bar_from_its_start_to_its_end() -> None:
    events = [
        Event(1, "workflow_started", 0.0),
        Event(2, "block_started", 10.0, "a"),
        Event(3, "block_started", 20.0, "a"),
        Event(4, "block_failed", 30.0, "a", {"error": "x"}),
        Event(5, "block_completed", 60.0, "a"),
        Event(6, "a_type_of_the_future", 80.0, "a"),
        Event(7, "workflow_completed", 100.0),
    ]
    rows = timeline_of(events, TextBudget()).rows
    ended = {row.sequence: (row.left, row.width, row.took_ms, row.tone) for row in rows}
    assert ended[4] == (20.0, 10.0, 10.0, "failed")
    assert ended[5] == (10.0, 50.0, 50.0, "passed")
    assert ended[6] == (80.0, 0.0, None, "other")
    assert ended[7] == (0.0, 100.0, 100.0, "passed")


def test_a_long_timeline_is_cut() -> None:
    events = [Event(number, "route_taken", float(number)) for number in range(MOST_EVENTS + 7)]
    timeline = timeline_of(events, TextBudget())
    assert (len(timeline.rows), timeline.omitted) == (MOST_EVENTS, 7)

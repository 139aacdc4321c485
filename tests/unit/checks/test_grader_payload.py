from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.checks.base import CheckContext, Subject
from evalcore.checks.program import payload_of
from evalcore.formats.assertions import AssertionReader
from evalcore.formats.graders import Graders
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.problems import Problems
from evalcore.trust.imports import ImportPolicy

CALL = {"tool": "search", "input": {"q": "x"}, "output": "3 hits", "duration_ms": 4}


def subject(folder: Path, case: Case, **details: Any) -> Subject:
    metrics = Metrics(latency_ms=120, cost_usd=0.01, input_tokens=10, output_tokens=4)
    evidence = Evidence("Yes.", metrics=metrics, details=details)
    return Subject("Yes.", metrics, evidence, case, CheckContext(folder, ImportPolicy()))


@pytest.mark.parametrize(
    ("written", "messages"),
    [
        (None, []),
        ("Yes.", [{"role": "assistant", "content": "Yes."}]),
        ({"total": 3}, [{"role": "assistant", "content": {"total": 3}}]),
        ([{"role": "assistant", "content": None, "tool_calls": [CALL]}],
         [{"role": "assistant", "tool_calls": [CALL]}]),
    ],
)  # fmt: skip
def test_an_expected_output_is_messages_whatever_its_short_form(
    tmp_path: Path, written: Any, messages: Any
) -> None:
    payload = payload_of(None, subject(tmp_path, Case("a", "Why?", expected_output=written)))
    assert payload["expected_output"] == messages
    assert payload["input"] == [{"role": "user", "content": "Why?"}]


def test_attached_files_have_their_paths_and_texts(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("xyzzy")
    (tmp_path / "long.txt").write_text("x" * 70_000)
    files = [{"type": "file", "value": name} for name in ("notes.txt", "long.txt")]
    content = [*files, {"type": "text", "value": "Which word?"}]
    case = Case("a", [{"role": "user", "content": content}])
    payload = payload_of(None, subject(tmp_path, case))
    notes, long, _ = payload["input"][0]["content"]
    assert (notes["text"], notes["resolved_path"]) == ("xyzzy", str(tmp_path / "notes.txt"))
    assert "text" not in long
    assert payload["input_files"] == [str(tmp_path / "notes.txt"), str(tmp_path / "long.txt")]
    assert "xyzzy" in payload["input_text"]
    assert "[file: long.txt, 70,000 bytes: too large to be shown here]" in payload["input_text"]


def test_the_trace_counts_tool_calls_of_any_form(tmp_path: Path) -> None:
    openai = {"function": {"name": "search", "arguments": '{"q": 1}'}, "id": None}
    failed = {"name": "save", "arguments": {}, "status": "error"}
    messages = [
        {"role": "assistant", "tool_calls": [CALL, openai, failed]},
        {"role": "assistant", "content": "Yes."},
    ]
    payload = payload_of(None, subject(tmp_path, Case("a", "Why?"), messages=messages))
    assert payload["trace_summary"] == {
        "event_count": 3,
        "tool_calls": {"search": 2, "save": 1},
        "error_count": 1,
        "tool_durations": {"search": [4]},
        "llm_call_count": 2,
    }
    assert payload["output_messages"][0]["tool_calls"] == [
        CALL,
        {"tool": "search", "input": '{"q": 1}'},
        {"tool": "save", "input": {}, "status": "error"},
    ]
    assert payload["messages"] == [payload["input"][0], *payload["output_messages"]]
    kinds = [event["type"] for event in payload["trace"]["events"]]
    assert kinds == ["message", "message", "tool_call", "tool_call", "tool_call", "message"]


def test_changes_of_files_are_one_diff_as_git_writes_it(tmp_path: Path) -> None:
    changes = [
        {"path": "a.txt", "change": "modified", "diff": "--- a.txt\n+++ a.txt\n+x"},
        {"path": "b.bin", "change": "added"},
        {"path": "c.txt", "change": "deleted", "diff": "--- a/c.txt\n+++ /dev/null\n"},
    ]
    case = Case("a", "Why?")
    payload = payload_of(None, subject(tmp_path, case, file_changes=changes))
    assert payload["file_changes"].splitlines() == [
        "diff --git a/a.txt b/a.txt",
        "--- a.txt",
        "+++ a.txt",
        "+x",
        "diff --git a/b.bin b/b.bin",
        "new file mode 100644",
        "added: b.bin",
        "diff --git a/c.txt b/c.txt",
        "deleted file mode 100644",
        "--- a/c.txt",
        "+++ /dev/null",
    ]
    assert payload_of(None, subject(tmp_path, case))["file_changes"] is None


def test_keys_that_the_type_does_not_know_are_the_programs_configuration(tmp_path: Path) -> None:
    written = {"command": "x", "limit": 3, "weight": 2, "config": {"limit": 4, "k": True}}
    config = read({**written, "fields": ["a"], "threshold": 0.5}, tmp_path)["config"]
    assert config == {"limit": 4, "fields": ["a"], "k": True, "threshold": 0.5}


def read(written: dict[str, Any], folder: Path) -> dict[str, Any]:
    problems = Problems("s.eval.yaml", lambda _: None)
    reader = AssertionReader(Graders(folder))
    assertion = reader.read({"type": "code-grader", **written}, (), problems)
    problems.raise_if_any()
    assert assertion is not None
    return dict(assertion.params)

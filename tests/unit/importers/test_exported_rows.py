"""Exports of LangSmith and Braintrust as suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalcore.errors import LoadError
from evalcore.importers.converted import chat_messages
from tests.support.conversions import converted
from tests.support.shell import evalcore


def content_of(source: str, name: str, folder: Path, **options: str) -> Any:
    suite, _ = converted(source, name, folder, **options)
    return yaml.safe_load(suite.read_text("utf-8"))


def test_examples_of_langsmith_are_a_test_file_if_all_answers_are_texts(tmp_path: Path) -> None:
    content = content_of("langsmith", "questions.jsonl", tmp_path)
    first, second = content["tests"]
    assert first == {
        "id": "5f0e",
        "input": "Where is Ghent?",
        "expected_output": "Belgium",
        "assertions": [{"type": "icontains", "value": "Belgium"}],
        "metadata": {"dataset_split": ["train"]},
        "tags": ["train"],
    }
    assert [message["role"] for message in second["input"]] == ["system", "user"]


def test_structured_outputs_are_compared_as_values(tmp_path: Path) -> None:
    content = content_of("langsmith", "fields.jsonl", tmp_path)
    (case,) = content["cases"]
    assert case["input"] == {"text": "2 teas", "locale": "en"}
    value = {"item": "tea", "count": 2}
    assert case["assertions"] == [{"type": "output.equals", "value": value}]


@pytest.mark.parametrize(
    ("source", "name", "outputs"),
    [
        ("langsmith", "experiment.csv", ["Antwerp", "Bruges"]),
        ("braintrust", "experiment.jsonl", [2, 5]),
    ],
)
def test_answers_of_experiments_are_recorded_answers(
    source: str, name: str, outputs: list[Any], tmp_path: Path
) -> None:
    suite, notes = converted(source, name, tmp_path)
    content = yaml.safe_load(suite.read_text("utf-8"))
    cases = content.get("tests") or content["cases"]
    assert [case["fixtures"]["output"] for case in cases] == outputs
    assert any("not taken over" in note for note in notes)


def test_an_experiment_of_braintrust_runs_without_a_target(tmp_path: Path) -> None:
    suite, _ = converted("braintrust", "experiment.jsonl", tmp_path)
    ended = evalcore("run", suite, "--json", store=tmp_path / "store")
    passed = {case["id"]: case["passed"] for case in ended.report["cases"]}
    assert passed == {"e1": True, "e2": False}


def test_rows_of_braintrust_keep_tags_metadata_and_messages(tmp_path: Path) -> None:
    content = content_of("braintrust", "questions.jsonl", tmp_path)
    assert content["tests"][0]["tags"] == ["docs"]
    assert content["tests"][0]["metadata"] == {"split": "train"}
    assert content["tests"][1]["input"] == [{"role": "user", "content": "Pin it"}]


def test_rows_that_expect_nothing_are_left_out(tmp_path: Path) -> None:
    suite, notes = converted("braintrust", "export.json", tmp_path)
    assert len(yaml.safe_load(suite.read_text("utf-8"))["tests"]) == 1
    assert "1 of 2 rows are left out: they expect nothing to compare" in notes


def test_a_judge_compares_where_that_is_asked_for(tmp_path: Path) -> None:
    suite, notes = converted("braintrust", "questions.jsonl", tmp_path, check="judge")
    content = yaml.safe_load(suite.read_text("utf-8"))
    assert content["tests"][0]["assertions"][0]["type"] == "llm-grader"
    assert {"name": "judge", "provider": "openai", "model": "gpt-4.1"} in content["targets"]
    assert any("the judge is gpt-4.1 of openai" in note for note in notes)


def test_a_row_without_an_input_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"inputs": {"a": "b"}, "outputs": {}}\n{"outputs": {}}\n')
    with pytest.raises(LoadError, match=r"rows\.jsonl:2: \[1\]\.inputs: is required"):
        converted(None, "rows.jsonl", tmp_path)


def test_texts_that_look_like_variables_of_a_suite_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"input": "print ${{ HOME }}", "expected": "${{ HOME }}"}'
    )
    suite, _ = converted(None, "rows.jsonl", tmp_path)
    ended = evalcore("run", suite, "--json", store=tmp_path / "store")
    (item,) = ended.report["cases"][0]["items"]
    assert item["outcome"] == "passed"
    assert item["assertions"][0]["actual"] == "print ${{ HOME }}"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hi"},
        {"type": "human", "content": [{"type": "text", "text": "hi"}]},
        {"type": "human", "data": {"content": "hi"}},
        {"id": ["langchain", "schema", "HumanMessage"], "kwargs": {"content": "hi"}},
    ],
)
def test_messages_of_langchain_and_openai_have_one_form(message: dict[str, Any]) -> None:
    assert chat_messages([message]) == [{"role": "user", "content": "hi"}]


RUNS = """\
{"run_id": "r1", "trace_id": "t", "name": "agent", "run_type": "chain", "parent_run_id": null, \
"inputs": {"question": "Where is Ghent?"}, "outputs": {"answer": "Belgium"}}
{"run_id": "r2", "trace_id": "t", "name": "model", "run_type": "llm", "parent_run_id": "r1", \
"inputs": {"messages": []}, "outputs": {"output": "Belgium"}}
"""
EVENTS = """\
{"data": [
  {"id": "e1", "input": "1 + 1", "expected": "2", "span_id": "s1", "root_span_id": "s1", \
"span_parents": null},
  {"id": "e2", "input": "1 + 1", "expected": "2", "span_id": "s2", "root_span_id": "s1", \
"span_parents": ["s1"]}
], "cursor": null}
"""


@pytest.mark.parametrize(
    ("name", "text", "case_id", "note"),
    [
        ("runs.jsonl", RUNS, "r1", "spans and runs below a row's own"),
        ("events.json", EVENTS, "e1", "spans and runs below a row's own"),
    ],
    ids=["runs of LangSmith", "BTQL of Braintrust"],
)
def test_traces_give_one_case_for_each_root(
    tmp_path: Path, name: str, text: str, case_id: str, note: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    suite, notes = converted(None, name, tmp_path)

    assert [test["id"] for test in yaml.safe_load(suite.read_text("utf-8"))["tests"]] == [case_id]
    assert any(note in each for each in notes)


@pytest.mark.parametrize(
    "answer",
    [
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        [{"type": "ai", "data": {"content": "hello"}}],
    ],
    ids=["messages", "one message", "LangChain's"],
)
@pytest.mark.parametrize(("question", "expected"), [("inputs", "outputs"), ("input", "expected")])
def test_an_expected_message_is_compared_by_its_text(
    question: str, expected: str, answer: Any, tmp_path: Path
) -> None:
    row = {
        question: {"text": "hi"},
        expected: answer if question == "input" else {"message": answer},
    }
    (tmp_path / "chat.json").write_text(json.dumps([row]), "utf-8")

    suite, notes = converted(None, "chat.json", tmp_path)
    (test,) = yaml.safe_load(suite.read_text("utf-8"))["tests"]
    assert test["assertions"] == [{"type": "icontains", "value": "hello"}]
    assert "of answers that are messages the text of the last one counts" in notes

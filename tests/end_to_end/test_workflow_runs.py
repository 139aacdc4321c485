"""Workflow files that run, from the command line; and the page that tells how."""

from __future__ import annotations

import re
from pathlib import Path

from evalcore.shapes import fields_of
from evalcore.workflow import definition
from evalcore.workflow.conditions import OPERATORS
from evalcore.workflow.definition import PARTS, WorkflowPart
from evalcore.workflow.events import EventType
from evalcore.workflow.reading import BLOCK_TYPES, block_class
from tests.support.model_server import model_server
from tests.support.shell import ROOT, evalcore

PAGE = (ROOT / "docs" / "reference" / "workflow-engine.md").read_text("utf-8")
NO_KEYS = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "ANTHROPIC_API_KEY": ""}
MIXED = """\
version: "1.0"
blocks:
  analyze:
    type: llm
    soul_ref: analyst
    prompt_template: "Analyze: {task_instruction}"
    assertions: [{type: contains, value: analysis}]
workflow: {name: research, entry: analyze, transitions: [{from: analyze, to: null}]}
%s
eval:
  threshold: 0.5
  cases:
    - id: fast_fixture_test
      fixtures: {analyze: LLMs are powerful language models.}
      expected: {analyze: [{type: contains, value: LLM}]}
    - id: live_execution_test
      inputs: {task_instruction: Research transformers}
      expected: {analyze: [{type: contains, value: transformer}]}
"""
SOULS = "souls: {analyst: {system_prompt: You analyse., model_name: m}}"
CODE = """\
blocks:
  double: {type: code, code: "def main(data): return data['n'] * 2"}
  fails: {type: code, depends: double, code: "def main(data): raise KeyError(data['n'])"}
workflow: {entry: double}
eval:
  cases:
    - {id: dies, inputs: {n: 2}, expected: {double: [{type: equals, value: "4"}]}}
    - {id: given, fixtures: {double: "6"}, expected: {double: [{type: equals, value: "6"}]}}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "suite.yaml"
    path.write_text(text, "utf-8")
    return path


def test_without_a_provider_only_the_live_case_is_in_error(tmp_path: Path) -> None:
    path = write(tmp_path, MIXED % "")
    ended = evalcore("run", "--json", path, store=tmp_path / "store", env=NO_KEYS)
    given, live = ended.report["cases"]

    assert given["passed"]
    assert live["items"][0]["status"] == "error"
    assert live["items"][0]["error"]["message"] == (
        "Case 'live_execution_test' requires an executor (no fixtures for all expected blocks) "
        "but no executor was provided."
    )
    assert ended.code == 4


def test_with_a_provider_the_live_case_is_executed(tmp_path: Path) -> None:
    path = write(tmp_path, MIXED % SOULS)
    with model_server() as server:
        keys = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.base_url}
        ended = evalcore("run", "--json", path, store=tmp_path / "store", env=keys)
        asked = server.stats().requests

    assert ended.code == 0, ended.err
    live = ended.report["cases"][1]["items"][0]
    assert (live["outcome"], live["metrics"]["output_tokens"]) == ("passed", 3)
    assert asked == 1


def test_one_case_that_fails_never_ends_the_others(tmp_path: Path) -> None:
    ended = evalcore("run", "--json", write(tmp_path, CODE), store=tmp_path / "store")
    dies, given = ended.report["cases"]

    assert dies["items"][0]["error"] == {
        "kind": "workflow",
        "message": "block 'fails': KeyError: 2 (line 1 of the code)",
    }
    assert given["passed"]
    assert "Traceback" not in ended.err


def test_a_block_that_was_never_reached_is_an_assertion_error(tmp_path: Path) -> None:
    text = CODE.replace("depends: double, ", "").replace(
        "- {id: given",
        "- {id: unreached, inputs: {n: 1}, expected: {fails: [{type: is-json}]}}\n    - {id: given",
    )
    ended = evalcore("run", "--json", write(tmp_path, text), store=tmp_path / "store")
    (assertion,) = ended.report["cases"][1]["items"][0]["assertions"]

    assert (assertion["outcome"], assertion["score"]) == ("error", 0.0)
    assert assertion["message"] == "block 'fails' was never reached"


def documented(word: str) -> bool:
    return re.search(rf"`[^`]*\b{re.escape(word)}\b[^`]*`", PAGE) is not None


def test_every_word_of_the_engine_is_documented() -> None:
    words = {*BLOCK_TYPES, *OPERATORS, *EventType, *PARTS, *shape_keys()}
    assert {word for word in words if not documented(word)} == set()


def shape_keys() -> set[str]:
    shapes = [*map(block_class, BLOCK_TYPES), *vars(definition).values()]
    return {
        key
        for shape in shapes
        if isinstance(shape, type) and issubclass(shape, WorkflowPart)
        for key in fields_of(shape)
        if key not in {"description", "label", "warn_at_pct", "condition_group", "case", "enabled"}
    }

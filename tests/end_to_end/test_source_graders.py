"""The examples of the test files' source document that are graded: each loads and runs."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from tests.support.judged import reply
from tests.support.model_server import model_server
from tests.support.model_wire import Question
from tests.support.shell import Json, evalcore

EXAMPLES = {
    "addition": """\
        tests:
          - id: addition
            criteria: Correctly calculates 15 + 27 = 42
            input: What is 15 + 27?
            expected_output: "42"
        """,
    "messages": """\
        tests:
          - id: tutor
            criteria: Correctly calculates 15 + 27 = 42
            input:
              - role: system
                content: You are a helpful math tutor.
              - role: user
                content: What is 15 + 27?
            expected_output:
              - role: assistant
                content: "42"
        """,
    "override": """\
        tests:
          - id: complex-case
            criteria: Provides detailed explanation
            input: Explain quicksort algorithm
            execution:
              target: gpt4_target
            assertions:
              - name: depth_check
                type: llm-grader
                prompt: ./graders/depth.md
        """,
    "skip defaults": """\
        assertions:
          - name: latency_check
            type: latency
            threshold: 5000
        tests:
          - id: normal-case
            criteria: Returns correct answer
            input: What is 2+2?
          - id: special-case
            criteria: Handles edge case
            input: Handle this edge case
            execution:
              skip_defaults: true
            assertions:
              - name: custom_eval
                type: llm-grader
        """,
    "rubrics": """\
        tests:
          - id: denied-party
            criteria: Must identify denied party
            input:
              - role: user
                content: Screen "Acme Corp" against denied parties list
            expected_output:
              - role: assistant
                content: "DENIED"
            assertions:
              - type: contains
                value: "DENIED"
                required: true
              - type: rubrics
                criteria:
                  - id: accuracy
                    outcome: Correctly identifies the denied party
                    weight: 5.0
                  - id: reasoning
                    outcome: Provides clear reasoning for the decision
                    weight: 3.0
        """,
    "required": """\
        tests:
          - id: required
            criteria: Must identify denied party
            input: Screen
            assertions:
              - type: contains
                value: "DENIED"
                required: true # must pass (>= 0.8)
              - type: rubrics
                required: 0.6 # must score at least 0.6
                criteria:
                  - id: quality
                    outcome: Response is well-structured
                    weight: 1.0
        """,
    "default grader": """\
        tests:
          - id: simple-eval
            criteria: Assistant correctly explains the bug and proposes a fix
            input: "Debug this function..."
            # No assertions → default llm-grader evaluates against criteria
        """,
    "mixed": """\
        tests:
          - id: mixed-eval
            criteria: Response is helpful and mentions the fix
            input: "Debug this function..."
            assertions:
              - type: llm-grader # explicit — receives criteria automatically
              - type: contains
                value: "fix"
        """,
    "metadata": """\
        tests:
          - id: code-gen
            criteria: Generates valid Python
            metadata:
              language: python
              difficulty: medium
            input: Write a function to sort a list
        """,
}
ANSWER = "42 DENIED, and here is the fix"


def answer(question: Question) -> str:
    """Answer as the target, or as the judge whatever it is asked."""
    if question.model != "judge":
        return ANSWER
    schema = question.body["response_format"]["json_schema"]["schema"]["properties"]
    if "checks" not in schema:
        return reply(0.9)
    ids = schema["checks"]["items"]["properties"]["id"]["enum"]
    return json.dumps({"checks": [{"id": one, "satisfied": True} for one in ids]})


def test_every_graded_example_runs(tmp_path: Path) -> None:
    (tmp_path / "graders").mkdir()
    (tmp_path / "graders" / "depth.md").write_text("Is {{output}} deep enough?")
    paths = []
    for name, text in EXAMPLES.items():
        paths.append(tmp_path / f"{name}.eval.yaml")
        paths[-1].write_text(textwrap.dedent(text))
    with model_server(script=answer) as server:
        base: Json = {"provider": "openai", "base_url": server.base_url}
        targets: list[Any] = [
            {**base, "name": name, "model": "small", "grader_target": "llm"}
            for name in ("default", "gpt4_target")
        ]
        targets.append({**base, "name": "llm", "model": "judge"})
        (tmp_path / "targets.yaml").write_text(json.dumps(targets))
        ended = evalcore("run", "--json", *paths, store=tmp_path / "store", cwd=tmp_path)

    assert ended.code == 0, ended.err or ended.out
    assert [report["decision"] for report in ended.lines] == ["pass"] * len(EXAMPLES)

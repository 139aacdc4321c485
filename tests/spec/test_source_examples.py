"""Every example of the source document of test files loads (shared/seeds/003).

Those that are graded run in `tests/end_to_end/test_source_graders.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import LoadError
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.suite import Case, Suite

# What the fragments leave undefined: who answers.
TARGETS = """
targets: [{name: default, provider: mock, response: ok}]
"""

EXAMPLES: dict[str, str] = {
    "workspace hooks": """
workspace:
  hooks:
    before_all:
      command: ["bun", "run", "default-setup.ts"]
tests:
  - id: case-1
    criteria: Should work
    input: Do something
    workspace:
      hooks:
        before_all:
          command: ["bun", "run", "custom-setup.ts"]
  - id: case-2
    criteria: Should also work
    input: Do something else
""",
    "metadata for hooks": """
tests:
  - id: sympy-20590
    criteria: Bug should be fixed
    input: Fix the diophantine equation bug
    metadata:
      repo: sympy/sympy
      base_commit: "abc123def"
    workspace:
      hooks:
        before_all:
          command: ["python", "checkout_repo.py"]
""",
    "is-json": """
tests:
  - id: json-api
    criteria: Returns valid JSON with status field
    input: Return the system status as JSON
    assertions:
      - type: is-json
      - type: contains
        value: '"status"'
""",
    "lists of values": """
tests:
  - id: required-fields
    criteria: Response mentions all required fields
    input: "Confirm details: name is Alice, email is alice@example.com"
    assertions:
      - type: contains-all
        value: ["Alice", "alice@example.com"]
  - id: greeting-variant
    criteria: Response includes some form of greeting
    input: "Greet the user warmly."
    assertions:
      - type: contains-any
        value: ["Hello", "Hi", "Hey", "Welcome", "Greetings"]
""",
    "negate and required": """
tests:
  - id: no-competitors
    criteria: Response must not mention any competitor
    input: "Describe our product advantages."
    assertions:
      - type: contains-any
        value: ["CompetitorA", "CompetitorB", "CompetitorC"]
        negate: true
  - id: required-inputs
    criteria: Agent asks for missing rule codes
    input: "Process customs entry for country BE."
    assertions:
      - name: asks-for-rule-codes
        type: icontains-any
        value: ["rule code", "rule codes"]
        required: true
      - name: mentions-format
        type: icontains-any
        value: ["true/false", "boolean", "expected value"]
""",
}


def loaded(folder: Path, text: str) -> Suite:
    path = folder / "example.eval.yaml"
    path.write_text(TARGETS + text)
    return load_suite(path, LoadOptions())


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_of_the_document_loads(tmp_path: Path, text: str) -> None:
    assert len(loaded(tmp_path, text).cases) == text.count("- id:") - text.count("          - id:")


def test_the_documents_hooks_are_inherited_and_replaced(tmp_path: Path) -> None:
    own, inherited = loaded(tmp_path, EXAMPLES["workspace hooks"]).cases
    assert hook_of(own) == ["bun", "run", "custom-setup.ts"]
    assert hook_of(inherited) == ["bun", "run", "default-setup.ts"]


def hook_of(case: Case) -> object:
    assert case.workspace is not None
    return case.workspace["hooks"]["before_all"]["command"]


IN_ITS_MANNER: dict[str, str] = {
    "aliases": """
eval_cases:
  - {id: a, expected_outcome: good, input: hi, assert: [{type: icontains_all, value: [a]}]}
""",
    "segments": """
input_files: [notes.txt]
tests:
  - id: a
    criteria: good
    input:
      - {role: user, content: [{type: file, value: notes.txt}, {type: text, value: Read it}]}
      - {role: assistant, content: Done}
      - {role: user, content: {task: go, times: 2}}
""",
    "tools": """
tests:
  - id: a
    criteria: good
    input:
      - {role: user, content: Look}
      - {role: assistant, tool_calls: [{id: c1, name: look, arguments: {}}]}
      - {role: tool, tool_call_id: c1, content: seen}
""",
    "trials": """
execution: {trials: {count: 5, strategy: at_least_k, k: 3}, workers: 2, threshold: 0.6}
tests: [{id: a, criteria: good, input: hi}]
""",
    "suite input": """
input: [{role: system, content: Be kind}]
tests:
  - {id: a, criteria: good, input: hi}
  - {id: b, criteria: good, input: hi, execution: {skip_defaults: true}}
""",
    "workspace of repositories": """
workspace:
  isolation: per_test
  repos:
    - {path: ./app, source: {type: git, url: 'https://example.org/a.git'}, checkout: {ref: main, ancestor: 1}}
  hooks: {after_each: {command: [git, reset], timeout_ms: 5000, cwd: .}}
tests: [{id: a, criteria: good, input: hi}]
""",  # noqa: E501
    "an object as input": "tests: [{id: a, criteria: good, input: {question: why}}]",
    "a conversation": """
tests:
  - {id: a, criteria: g, conversation: true, conversation_id: c, input: [{role: user, content: a}]}
""",
}


@pytest.mark.parametrize("text", IN_ITS_MANNER.values(), ids=IN_ITS_MANNER)
def test_a_file_in_its_manner_loads(tmp_path: Path, text: str) -> None:
    (tmp_path / "notes.txt").write_text("n")
    assert len(loaded(tmp_path, text).cases) >= 1


WRONG: dict[str, tuple[str, str]] = {
    "role": ("tests:\n  - {id: a, criteria: g, input: [{role: usr, content: x}]}", "role"),
    "segment": (
        "tests:\n  - {id: a, criteria: g, input: [{role: user, content: [{type: txt, value: x}]}]}",
        "type",
    ),
    "no content": ("tests:\n  - {id: a, criteria: g, input: [{role: user}]}", "content"),
    "nothing said": (
        "tests:\n  - {id: a, criteria: g, input: [{role: user, content: null}]}",
        "has no 'content'",
    ),
    "missing file": (
        "tests:\n  - {id: a, criteria: g, input: [{role: user, content: "
        "[{type: file, value: no}]}]}",
        "there is no file 'no'",
    ),
    "missing input file": (
        "tests:\n  - {id: a, criteria: g, input: x, input_files: [no.txt]}",
        "there is no file 'no.txt'",
    ),
    "hook": ("workspace:\n  hooks: {before_all: [x]}\ntests: [{id: a, criteria: g, input: x}]", ""),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_one_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LoadError) as caught:
        loaded(tmp_path, "\n" + text)
    (problem,) = caught.value.problems
    assert problem.line == TARGETS.count("\n") + 3
    assert message in str(problem)

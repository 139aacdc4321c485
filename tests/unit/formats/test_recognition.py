"""Which format a file has, by its content, in the order of docs/reference/formats.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import LoadError
from evalcore.formats.documents import parse_document
from evalcore.formats.registry import recognise
from evalcore.model.suite import Format
from tests.unit.formats.loading import load_text, problems_of, usage_error_of


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        pytest.param("tests: []", Format.TEST_FILE, id="a list of tests"),
        pytest.param("tests: cases.csv", Format.TEST_FILE, id="a path"),
        pytest.param("eval_cases: []", Format.TEST_FILE, id="alias eval_cases"),
        pytest.param("evalcases: []", Format.TEST_FILE, id="alias evalcases"),
        pytest.param("{tests: [], eval: {}}", Format.TEST_FILE, id="tests before eval"),
        pytest.param("eval: {}", Format.WORKFLOW_HARNESS, id="eval"),
        pytest.param("workflow: {}", Format.WORKFLOW_HARNESS, id="workflow"),
        pytest.param("{eval: {}, suites: {}}", Format.WORKFLOW_HARNESS, id="eval before suites"),
        pytest.param("{eval: {}, tests: {}}", Format.WORKFLOW_HARNESS, id="eval before a mapping"),
        pytest.param("suites: {}", Format.SCRIPT_SUITE, id="suites"),
        pytest.param("tests: {a: {}}", Format.SCRIPT_SUITE, id="a mapping of tests"),
        pytest.param("{cases: [], flow: 'm:f'}", Format.SUITE, id="cases with flow"),
    ],
)
def test_content_decides_the_format(text: str, format_: Format) -> None:
    assert recognise(parse_document(text.encode(), "file")) is format_


@pytest.mark.parametrize("text", ["cases: []", "flow: 'm:f'", "tests: 3", "[]", "x", "a: 1"])
def test_anything_else_is_no_suite(text: str) -> None:
    with pytest.raises(LoadError):
        recognise(parse_document(text.encode(), "file"))


@pytest.mark.parametrize(
    "text",
    [
        "{prompts: [hi], providers: [echo], tests: [{assert: []}]}",
        "{version: 2, eval: {task: t, model: m, created: x}, samples: []}",
        "[{input: a, target: b}]",
        "{cases: [{name: a, inputs: b}]}",
        "{testCases: [], runDuration: 1}",
        "[{input: a, retrieval_context: null}]",
        "[{inputs: {q: a}, outputs: {a: b}}]",
        "[{input: a, expected: b}]",
    ],
)
def test_a_file_of_another_program_is_to_be_imported(text: str) -> None:
    with pytest.raises(LoadError) as raised:
        recognise(parse_document(text.encode(), "file.yaml"))
    (problem,) = raised.value.problems
    assert problem.message.startswith("is a file of another program")
    assert "`evalcore import FILE`" in problem.message


@pytest.mark.parametrize("name", ["greeting.eval.ts", "suite.MTS", "promptfooconfig.js"])
def test_programs_of_others_are_named_as_such(tmp_path: Path, name: str) -> None:
    (problem,) = problems_of(tmp_path, "export default defineEval({ name: 'x' });", name)

    assert problem.message.startswith("is a program, as AgentV and promptfoo execute them")


@pytest.mark.parametrize("name", ["cases.jsonl", "cases.JSONL"])
def test_rows_are_test_files_whatever_they_hold(tmp_path: Path, name: str) -> None:
    line = '{"id": "a", "input": "b", "output": "c", "assertions": [{"type": "is-json"}]}'

    assert load_text(tmp_path, line, name).definition.format is Format.TEST_FILE


def test_the_caller_may_force_a_format(tmp_path: Path) -> None:
    text = """\
        eval: {cases: [{id: a, fixtures: {b: c}, expected: {b: [{type: equals, value: c}]}}]}
        tests: not used
        """
    found = load_text(tmp_path, text, format="workflow-harness").definition.format

    assert found is Format.WORKFLOW_HARNESS


def test_an_unknown_format_is_a_usage_error(tmp_path: Path) -> None:
    assert "unknown format 'yaml'" in usage_error_of(tmp_path, "tests: []", format="yaml")

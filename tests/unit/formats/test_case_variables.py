"""Test files: `vars` of a test, and assertions that several files include."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.model.suite import Case
from tests.unit.formats.loading import cases_of, problems_of, write

TARGETS = "targets: [{name: default, provider: echo}]"
INCLUDING = "{id: a, input: hi, assertions: [{include: %s}]}"


def filled(folder: Path, fields: str, suite: str = "") -> Case:
    test = f"{{id: a, assertions: [{{type: is-json}}], {fields}}}"
    return cases_of(folder, f"{TARGETS}\n{suite}\ntests: [{test}]")["a"]


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        pytest.param("name: Ada", "hello {{ name }}!", "hello Ada!", id="in a text"),
        pytest.param("who: {name: Ada}", "hello {{who.name}}", "hello Ada", id="a path"),
        pytest.param("list: [1, ä]", "of {{ list }}", 'of [1, "ä"]', id="JSON in a text"),
        pytest.param("name: Ada", "{{ name }} {{ nmae }}", "Ada {{ nmae }}", id="unknown stays"),
        pytest.param("a: '{{ b }}', b: c", "{{ a }} {{ b }}", "{{ b }} c", id="filled once"),
    ],
)
def test_vars_fill_a_tests_texts(tmp_path: Path, values: str, text: str, expected: str) -> None:
    case = filled(tmp_path, f"vars: {{{values}}}, input: '{text}', criteria: '{text}'")

    assert (case.input, case.criteria) == (expected, expected)


def test_a_text_that_is_one_variable_becomes_its_value(tmp_path: Path) -> None:
    case = filled(tmp_path, "vars: {q: {x: 1}}, input: '{{ q }}', expected_output: ['{{ q.x }}']")

    assert (case.input, case.expected_output) == ({"x": 1}, [1])


def test_vars_fill_the_suites_input_and_files_for_that_test(tmp_path: Path) -> None:
    write(tmp_path, {"ada.md": "notes"})
    suite = "input: 'You talk to {{ name }}.'\ninput_files: ['{{ name }}.md']"

    case = filled(tmp_path, "vars: {name: ada}, input: hi", suite)

    assert [message["content"] for message in case.input] == [
        "You talk to ada.",
        [{"type": "file", "value": "ada.md"}, {"type": "text", "value": "hi"}],
    ]


def test_included_assertions_stand_where_they_are_included(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".agentv/templates/safe.yaml": """
                assertions: [{type: contains, value: a}, {include: ./deeper/more.yaml}]""",
            ".agentv/templates/deeper/more.yaml": """
                assertions: [{type: llm-grader, prompt: ./kind.md}]""",
            ".agentv/templates/deeper/kind.md": "\ufeffIs {{output}} kind?",
        },
    )
    suite = "assertions: [{type: is-json}, {include: ./.agentv/templates/deeper/more.yaml}]"
    test = "{id: a, input: hi, assertions: [{include: safe}, {type: equals, value: b}]}"

    case = cases_of(tmp_path, f"{TARGETS}\n{suite}\ntests: [{test}]")["a"]

    names = ["contains-a", "llm_grader", "equals-b", "is_json", "llm_grader"]
    assert [assertion.name for assertion in case.assertions] == names
    assert case.assertions[1].params["prompt"] == "Is {{output}} kind?"


@pytest.mark.parametrize(
    ("files", "name", "place"),
    [
        pytest.param({}, "none", ("suite.eval.yaml", 2, "no template 'none'"), id="none"),
        pytest.param(
            {"more.yaml": "\nassertions:\n- {type: containz, value: a}"},
            "./more.yaml",
            ("more.yaml", 3, "unknown assertion 'containz'"),
            id="wrong inside",
        ),
        pytest.param(
            {"more.yaml": "assertions: [{include: ./more.yaml}]"},
            "./more.yaml",
            ("more.yaml", 1, "includes itself"),
            id="itself",
        ),
        pytest.param(
            {f"{n}.yaml": f"assertions: [{{include: ./{n + 1}.yaml}}]" for n in range(4)},
            "./0.yaml",
            ("2.yaml", 1, "more than 3 files deep"),
            id="too deep",
        ),
        pytest.param({"more.yaml": "[1]"}, "./more.yaml", ("more.yaml", 1, "a list"), id="no list"),
    ],
)
def test_a_wrong_template_is_a_mistake_with_its_line(
    tmp_path: Path, files: dict[str, str], name: str, place: tuple[str, int, str]
) -> None:
    write(tmp_path, files)

    (problem,) = problems_of(tmp_path, f"{TARGETS}\ntests: [{INCLUDING % name}]")

    assert (problem.file.rpartition("/")[2], problem.line) == place[:2]
    assert place[2] in problem.message


def test_a_row_of_data_includes_no_assertions(tmp_path: Path) -> None:
    write(tmp_path, {"more.yaml": "assertions: [{type: is-json}]"})
    row: dict[str, Any] = {"name": "rows.jsonl"}
    line = '{"id": "a", "input": "b", "output": "c", "assertions": [{"include": "./more.yaml"}]}'

    (problem,) = problems_of(tmp_path, line, **row)

    assert "a template may hold what runs programs" in problem.message

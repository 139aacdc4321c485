"""Agent Skills' `evals.json` are test files (docs/decisions/0113)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.formats.documents import parse_document
from evalcore.formats.registry import recognise
from evalcore.model.suite import Case, Format
from tests.unit.formats.loading import cases_of, load_text, places_of, problems_of, write

NAME = "evals.json"
TARGETS = {"targets.yaml": "- {name: default, provider: echo}"}
ANSWERED = {"prompt": "Sort the list.", "expected_output": "A sorted list."}


def text_of(*evals: dict[str, Any], **suite: Any) -> str:
    """Return the text of a file, one eval a line from line 2 on."""
    lines = ",\n".join(json.dumps(entry) for entry in evals)
    rest = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in suite.items())
    return f'{{"evals": [\n{lines}\n]{rest}}}'


def only(folder: Path, entry: dict[str, Any], **suite: Any) -> Case:
    write(folder, TARGETS)
    text = text_of({"id": 1, **entry}, **{"skill_name": "sorter", **suite})
    (case,) = cases_of(folder, text, NAME).values()
    return case


@pytest.mark.parametrize(
    ("text", "format_"),
    [
        pytest.param('{"skill_name": "s", "evals": [{}]}', Format.TEST_FILE, id="a skill"),
        pytest.param('{"evals": [{"id": 1, "prompt": "p"}]}', Format.TEST_FILE, id="a prompt"),
        pytest.param('{"evals": [{"id": "a"}]}', Format.WORKFLOW_EVALS, id="neither"),
        pytest.param(
            '{"workflow": "w", "evals": [{"prompt": "p"}]}', Format.WORKFLOW_EVALS, id="a workflow"
        ),
    ],
)
def test_evals_of_a_skill_are_told_from_those_of_a_workflow(text: str, format_: Format) -> None:
    assert recognise(parse_document(text.encode(), NAME)) is format_


def test_an_eval_is_a_test(tmp_path: Path) -> None:
    write(tmp_path, {**TARGETS, "files/list.csv": "3\n1"})
    entry = {"id": 7, "name": "sorting", **ANSWERED, "files": ["files/list.csv"]}
    suite = load_text(tmp_path, text_of(entry, skill_name="sorter"), NAME)
    (case,) = suite.cases

    assert suite.definition.name == "sorter"
    assert case.id == "7"
    assert case.metadata == {"skill_name": "sorter"}
    assert case.expected_output == "A sorted list."
    assert case.input == [
        {
            "role": "user",
            "content": [
                {"type": "file", "value": "files/list.csv"},
                {"type": "text", "value": "Sort the list."},
            ],
        }
    ]


def test_an_expected_output_alone_is_the_criterion_of_a_judge(tmp_path: Path) -> None:
    case = only(tmp_path, ANSWERED)

    assert case.criteria == "A sorted list."
    assert [assertion.check for assertion in case.assertions] == ["llm-grader"]


@pytest.mark.parametrize("key", ["assertions", "expectations"])
def test_statements_are_the_criteria_of_one_rubric(tmp_path: Path, key: str) -> None:
    case = only(tmp_path, {**ANSWERED, key: ["It is sorted.", "It is complete."]})
    (rubrics,) = case.assertions

    assert rubrics.check == "rubrics"
    assert rubrics.weight == 2
    assert [criterion["outcome"] for criterion in rubrics.params["criteria"]] == [
        "It is sorted.",
        "It is complete.",
    ]
    assert case.criteria is None


@pytest.mark.parametrize("used", [True, False])
def test_should_trigger_checks_the_use_of_the_skill(tmp_path: Path, used: bool) -> None:
    case = only(tmp_path, {"prompt": "p", "assertions": [], "should_trigger": used})
    (trigger,) = case.assertions

    assert trigger.check == "skill-trigger"
    assert trigger.params["skill"] == "sorter"
    assert trigger.params.get("should_trigger", True) is used


def test_the_section_of_evalcore_is_read(tmp_path: Path) -> None:
    assert only(tmp_path, ANSWERED, evalcore={"threshold": 0.3}).threshold == 0.3


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"id": 1, "prompt": 3}, "evals[0].prompt", "expected text"),
        ({"prompt": "p"}, "evals[0].id", "is required"),
        ({"id": 1, "prompt": ""}, "evals[0].prompt", "must not be empty"),
        ({"id": 1, "prompt": "p"}, "evals[0]", "or nothing is checked"),
        ({"id": 1, **ANSWERED, "assertion": ["a"]}, "evals[0].assertion", "Did you mean"),
        ({"id": 1, **ANSWERED, "files": ["no.csv"]}, "evals[0].files[0]", "no file 'no.csv'"),
        ({"id": 1, **ANSWERED, "should_trigger": True}, "evals[0].should_trigger", "'skill_name'"),
        (
            {"id": 1, "prompt": "p", "assertions": ["a"], "expectations": ["a"]},
            "evals[0].expectations",
            "keep one of them",
        ),
    ],
)
def test_mistakes_are_named_by_the_keys_of_the_file(
    tmp_path: Path, entry: dict[str, Any], path: str, message: str
) -> None:
    write(tmp_path, TARGETS)
    (problem,) = problems_of(tmp_path, text_of(entry), NAME)

    assert places_of((problem,)) == [(2, path)]
    assert message in problem.message


def test_without_a_target_the_ways_are_those_that_such_a_file_has(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, text_of({"id": 1, **ANSWERED}), NAME)

    assert places_of((problem,)) == [(2, "evals[0]")]
    assert problem.message.endswith("--target NAME, or call one 'default' in a targets.yaml")


def test_ids_are_unique(tmp_path: Path) -> None:
    write(tmp_path, TARGETS)
    text = text_of({"id": 1, **ANSWERED}, {"id": "1", **ANSWERED})

    assert places_of(problems_of(tmp_path, text, NAME)) == [(3, "evals[1].id")]

"""Cases that need a judge where the suite has none: one warning for the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.formats.loading import load_text, problems_of

HEAD = "targets: [{name: default, provider: echo%s}, {name: strict, provider: echo}%s]"
REFERENCE_ONLY = "{id: a, input: b, expected_output: c}"


def warnings(folder: Path, test: str, *, of_target: str = "", targets: str = "") -> tuple[str, ...]:
    return load_text(folder, f"{HEAD % (of_target, targets)}\ntests: [{test}]").warnings


@pytest.mark.parametrize(
    "test",
    [
        REFERENCE_ONLY,
        "{id: a, input: b, criteria: c}",
        "{id: a, input: b, assertions: [{type: rubrics, criteria: [x]}]}",
        "{id: a, input: b, assertions: [{type: composite, assertions: [{type: llm-grader}]}]}",
    ],
)
def test_a_case_without_a_judge_is_warned_about(tmp_path: Path, test: str) -> None:
    (warning,) = warnings(tmp_path, test)
    assert warning.startswith("case 'a' needs a judge and the suite has none")
    assert "columns: {equals: COLUMN}" in warning


@pytest.mark.parametrize(
    "test",
    [
        "{id: a, input: b, assertions: [{type: equals, value: b}]}",
        "{id: a, input: b, assertions: [{type: similar, value: b}]}",
        "{id: a, input: b, assert: [{type: composite, assertions: [{type: similar, value: b}]}]}",
        "{id: a, input: b, assertions: [{type: llm-grader, judge: strict}]}",
    ],
)
def test_what_needs_no_default_judge_is_not_warned_about(tmp_path: Path, test: str) -> None:
    assert warnings(tmp_path, test) == ()


def test_a_judge_of_the_suite_or_of_the_target_is_enough(tmp_path: Path) -> None:
    judge = ", {name: judge, provider: echo}"
    assert warnings(tmp_path, REFERENCE_ONLY, targets=judge) == ()
    assert warnings(tmp_path, REFERENCE_ONLY, of_target=", grader_target: strict") == ()


MODEL = "targets: [{name: default, provider: openai, model: m}, {name: other, provider: echo}%s]"


def test_a_model_without_a_judge_judges_its_own_answers(tmp_path: Path) -> None:
    suite = load_text(tmp_path, f"{MODEL % ''}\ntests: [{REFERENCE_ONLY}]")
    (warning,) = suite.warnings

    assert suite.definition.targets["default"].options["grader_target"] == "default"
    assert warning.startswith("case 'a' needs a judge and the suite has none, so the model that")
    (problem,) = problems_of(tmp_path, f"{MODEL % ''}\ntests: [{REFERENCE_ONLY}]", strict=True)
    assert problem.message == warning


@pytest.mark.parametrize(
    ("judge", "test"),
    [
        (", {name: judge, provider: echo}", REFERENCE_ONLY),
        ("", "{id: a, input: b, assertions: [{type: equals, value: b}]}"),
        ("", "{id: a, input: b, assertions: [{type: llm-grader, judge: other}]}"),
    ],
    ids=["the suite's judge", "nothing to judge", "a named judge"],
)
def test_a_model_judges_only_what_nothing_else_judges(
    tmp_path: Path, judge: str, test: str
) -> None:
    suite = load_text(tmp_path, f"{MODEL % judge}\ntests: [{test}]")

    assert "grader_target" not in suite.definition.targets["default"].options
    assert suite.warnings == ()


def test_several_cases_are_one_line_and_in_strict_mode_one_mistake(tmp_path: Path) -> None:
    tests = ", ".join(f"{{id: t{n}, input: b, criteria: c}}" for n in range(5))
    (warning,) = warnings(tmp_path, tests)
    assert warning.startswith("5 cases ('t0', 't1', 't2', …) need a judge")

    text = f"{HEAD % ('', '')}\ntests: [{tests}]"
    (problem,) = problems_of(tmp_path, text, strict=True)
    assert problem.message == warning


@pytest.mark.parametrize(
    ("section", "count"),
    [("", 1), ("evalcore: {judge: strict}", 0)],
    ids=["none", "the suite's"],
)
def test_a_scorer_without_a_judge_is_warned_about(tmp_path: Path, section: str, count: int) -> None:
    text = f"""
        name: s
        flow: {{provider: echo}}
        variants: [{{id: v}}]
        targets: [{{name: strict, provider: echo}}]
        {section}
        scorers: [{{scorer: llm_judge, name: nice}}, {{scorer: llm_judge, judge: strict}}]
        cases: [{{id: a, input: b, assertions: [{{type: output.contains, value: b}}]}}]
    """
    texts = load_text(tmp_path, text, "s.suite.yaml").warnings

    assert [text for text in texts if text.startswith("scorer 'nice' needs a judge")] == [*texts]
    assert len(texts) == count

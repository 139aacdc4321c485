"""Test files as AgentV's users write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.formats.loading import cases_of, load_text, places_of, problems_of, write

TARGET = "targets: [{name: default, provider: echo}]\n"
TEST = "{id: a, input: hi, criteria: c}"


def only(folder: Path, suite: str, test: str) -> Any:
    """Return the only case of a suite."""
    (case,) = cases_of(folder, f"{TARGET}{suite}\ntests: [{test}]").values()
    return case


def test_inline_tests_and_files_of_tests_stand_in_one_list(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cases/more.yaml": "- {id: b, input: hi, criteria: c}",
            "cases/rows.jsonl": '{"id": "c", "input": "hi", "criteria": "c"}',
        },
    )
    text = f"{TARGET}tests: [{TEST}, file://cases/more.yaml, cases/rows.jsonl, {{id: d}}]"

    assert places_of(problems_of(tmp_path, text)) == [(2, "tests[3].input")]
    assert list(cases_of(tmp_path, text.replace(", {id: d}", ""))) == ["a", "b", "c"]


def test_a_leading_slash_is_the_root_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, {"shared/a.md": "text", "evals/deep/suite.eval.yaml": ""})
    suite = f"{TARGET}tests: [{{id: a, input: hi, criteria: c, input_files: [/shared/a.md]}}]"

    assert load_text(tmp_path, suite, name="evals/deep/suite.eval.yaml").cases
    outside = suite.replace("/shared/a.md", "/shared/../../x.md")
    (problem,) = problems_of(tmp_path, outside, name="evals/deep/suite.eval.yaml")
    assert "lies outside" in problem.message


def test_plain_texts_are_the_criteria_of_one_rubric(tmp_path: Path) -> None:
    listed = "[{type: contains, value: x}, Greets the user, {type: is-json}, Is short]"
    case = only(tmp_path, "", f"{{id: a, input: hi, assertions: {listed}}}")

    assert [entry.type for entry in case.assertions] == ["contains", "rubrics", "is-json"]
    rubric = case.assertions[1]
    assert rubric.weight == 2.0
    assert [each["outcome"] for each in rubric.params["criteria"]] == [
        "Greets the user",
        "Is short",
    ]


@pytest.mark.parametrize(
    ("written", "outcome", "required"),
    [
        ("Is short", "Is short", None),
        ("[{outcome: Is short, required_min_score: 8}]", "Is short", 0.8),
        (
            "[{outcome: It rains, operator: contradiction}]",
            "The output makes no claim that contradicts this: It rains (it need not mention it)",
            None,
        ),
    ],
)
def test_criteria_as_agentv_writes_them(
    tmp_path: Path, written: str, outcome: str, required: float | None
) -> None:
    entry = f"{{type: rubrics, criteria: {written}}}"
    case = only(tmp_path, "", f"{{id: a, input: hi, assertions: [{entry}]}}")

    (criterion,) = case.assertions[0].params["criteria"]
    assert (criterion["outcome"], criterion["required"]) == (outcome, required)


def test_a_target_may_stand_at_the_top(tmp_path: Path) -> None:
    text = f"targets: [{{name: mine, provider: echo}}]\ntarget: mine\ntests: [{TEST}]"

    assert load_text(tmp_path, text).definition.default_target == "mine"
    twice = f"{text}\nexecution: {{target: mine}}"
    assert places_of(problems_of(tmp_path, twice)) == [(2, "target")]


def test_the_limit_of_trials_bounds_those_of_all_tests(tmp_path: Path) -> None:
    trials = "execution: {trials: {count: 2, cost_limit_usd: 0.5}}"
    text = f"{TARGET}{trials}\ntests: [{TEST}, {{id: b, input: hi, criteria: c}}]"

    assert load_text(tmp_path, text).definition.limits.max_cost_usd == 1.0


@pytest.mark.parametrize(
    ("assertion", "warning"),
    [
        (
            "{type: contains, value: hi, flags: i}",
            "tests[0].assertions[0].flags: has no effect: only 'regex' has flags",
        ),
        (
            "{type: llm-grader, config: {a: 1}, judge: default}",
            "tests[0].assertions[0].config: has no effect: a prompt is a text",
        ),
        (
            "{type: llm-grader, max_steps: 3, judge: default}",
            "tests[0].assertions[0].max_steps: has no effect: a judge answers in one step",
        ),
        (
            "{type: tool-trajectory, mode: exact, expected: [{tool: t, input: {x: 1}}]}",
            "tests[0].assertions[0].expected[0].input: has no effect: only the arguments "
            "of a call are compared (`args`)",
        ),
    ],
)
def test_what_has_no_effect_is_a_warning_and_strictly_a_mistake(
    tmp_path: Path, assertion: str, warning: str
) -> None:
    text = f"{TARGET}tests: [{{id: a, input: hi, assertions: [{assertion}]}}]"

    assert load_text(tmp_path, text).warnings == (warning,)
    assert len(problems_of(tmp_path, text, strict=True)) == 1


def test_a_program_of_the_repository_is_an_assertion_type(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    program = ".agentv/assertions/word-count.py"
    write(tmp_path, {program: "print(1)", f"evals/{program}": "print(2)"})
    entry = "{type: word-count, at_least: 3, weight: 2}"
    text = f"{TARGET}tests: [{{id: a, input: hi, criteria: c, assertions: [{entry}]}}]"
    suite = load_text(tmp_path, text, name="evals/suite.eval.yaml")
    (assertion,) = next(iter(suite.cases)).assertions

    assert (assertion.type, assertion.check, assertion.name) == (
        "word-count",
        "code-grader",
        "word-count",
    )
    assert assertion.params["command"] == ["python3", program]
    assert assertion.params["config"] == {"at_least": 3}
    assert assertion.weight == 2.0


@pytest.mark.parametrize(
    ("folders", "winner"),
    [
        (["evals/.agentv/graders"], "graders/lines.py"),
        ([".agentv/judges"], "../.agentv/judges/lines.py"),
        (["evals/.agentv/graders", ".agentv/assertions"], "../.agentv/assertions/lines.py"),
    ],
    ids=["graders", "judges", "assertions before both"],
)
def test_graders_and_judges_of_the_repository_are_assertion_types(
    tmp_path: Path, folders: list[str], winner: str
) -> None:
    (tmp_path / ".git").mkdir()
    write(tmp_path, {f"{folder}/lines.py": "print(1)" for folder in folders})
    text = f"{TARGET}tests: [{{id: a, input: hi, assertions: [{{type: lines}}]}}]"
    (case,) = cases_of(tmp_path, text, name="evals/suite.eval.yaml").values()

    assert case.assertions[0].params["command"][1].endswith(winner)


def test_a_row_of_data_names_no_program_that_its_suite_does_not(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    row = '{"id": "a", "input": "hi", "assertions": [{"type": "lines"}]}'
    write(tmp_path, {".agentv/assertions/lines.py": "print(1)", "rows.jsonl": row})

    (problem,) = problems_of(tmp_path, f"{TARGET}tests: rows.jsonl")
    assert "'lines' runs a program" in problem.message
    assert load_text(tmp_path, f"{TARGET}assertions: [{{type: lines}}]\ntests: rows.jsonl").cases


def test_a_suite_that_caches_reuses_what_earlier_runs_executed(tmp_path: Path) -> None:
    definition = load_text(
        tmp_path, f"{TARGET}execution: {{cache: true}}\ntests: [{TEST}]"
    ).definition

    assert definition.reuse
    assert not load_text(tmp_path, f"{TARGET}tests: [{TEST}]").definition.reuse


def test_evaluators_is_an_older_name_of_assertions(tmp_path: Path) -> None:
    inner = "execution: {evaluators: [{type: contains, value: b}]}"
    test = f"{{id: a, input: hi, evaluators: [{{type: contains, value: a}}], {inner}}}"
    case = only(tmp_path, "evaluators: [{type: is-json}]", test)

    assert [entry.name for entry in case.assertions] == ["contains-a", "contains-b", "is_json"]
    twice = f"{TARGET}evaluators: []\nassert: []\ntests: [{TEST}]"
    assert places_of(problems_of(tmp_path, twice)) == [(2, "evaluators")]


@pytest.mark.parametrize("name", ["assertions", "assert", "evaluators"])
def test_a_mistake_in_assertions_has_its_line_under_each_of_their_names(
    tmp_path: Path, name: str
) -> None:
    wrong = "      - type: contains\n        value: a\n      - type: script\n        command: [x]\n"
    suite = f"{TARGET}tests:\n  - id: a\n    input: hi\n    {name}:\n{wrong}"
    (problem,) = problems_of(tmp_path, suite)

    assert (problem.line, problem.path) == (8, f"tests[0].{name}[1].type")
    assert problem.message.endswith("unknown assertion 'script'. Did you mean 'code-grader'?")


@pytest.mark.parametrize(
    ("suite", "test", "hints"),
    [
        ("", "{id: a, input_messages: [], criteria: c}", ["is required", "Did you mean 'input'?"]),
        ("", "{id: a, input: hi, expected_messages: []}", ["Did you mean 'expected_output'?"]),
        ("", "{case: a, input: hi, criteria: c}", ["is required", "Did you mean 'id'?"]),
        ("experiment: {target: x}", TEST, ["Did you mean 'execution'?"]),
        ("evaluate_options: {repeat: 2}", TEST, ["Did you mean 'execution'?"]),
    ],
)
def test_keys_of_other_versions_are_named_as_today(
    tmp_path: Path, suite: str, test: str, hints: list[str]
) -> None:
    problems = problems_of(tmp_path, f"{TARGET}{suite}\ntests: [{test}]")

    assert len(problems) == len(hints)
    assert all(any(hint in each.message for each in problems) for hint in hints)


@pytest.mark.parametrize("key", ["assertions", "evaluators"])
def test_assertions_of_the_suite_may_stand_in_its_execution(tmp_path: Path, key: str) -> None:
    listed = f"{key}: [{{type: contains, value: hi}}]"
    case = only(tmp_path, f"execution: {{{listed}}}", TEST)

    assert [assertion.check for assertion in case.assertions] == ["contains"]
    text = f"{TARGET}assertions: []\nexecution: {{{listed}}}\ntests: [{TEST}]"
    (problem,) = problems_of(tmp_path, text)
    assert problem.path == f"execution.{key}"
    assert problem.message == "is another name of 'assertions'; keep one of them"

"""`evalcore assert` gives the checked answers of tests/conformance, whole files in one process."""

from __future__ import annotations

import json

import pytest

from tests.support.shell import CONFORMANCE, Ended, Json, evalcore

FORMATS = ("workflow-harness", "test-file")
FIELDS = ("id", "assertion", "output", "measured")


def checked_cases(format_: str) -> list[Json]:
    text = (CONFORMANCE / f"{format_}-assertions.json").read_text("utf-8")
    cases: list[Json] = json.loads(text)["cases"]
    return cases


def ask(format_: str, questions: list[Json]) -> Ended:
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    return evalcore("assert", "--format", format_, stdin=lines)


@pytest.mark.parametrize("format_", FORMATS)
def test_an_assertion_has_its_checked_score(format_: str) -> None:
    cases = checked_cases(format_)
    ended = ask(format_, [{name: case[name] for name in FIELDS if name in case} for case in cases])
    assert ended.code == 0, ended.err
    for case, answer in zip(cases, ended.lines, strict=True):
        expected = case["expect"]
        if expected == "error":
            assert (answer["outcome"], answer["score"]) == ("error", 0.0), case["id"]
            continue
        assert answer["outcome"] in {"passed", "failed", "blocked"}, answer
        assert answer["score"] == pytest.approx(expected["score"], abs=1e-9), case["id"]
        if "passed" in expected:
            assert (answer["outcome"] == "passed") == expected["passed"], case["id"]


@pytest.mark.parametrize("format_", FORMATS)
def test_answers_come_in_the_order_of_the_questions(format_: str) -> None:
    questions = [
        {"id": number, "assertion": {"type": "contains", "value": str(number)}, "output": "1 3 5"}
        for number in range(7)
    ]
    answers = ask(format_, questions).lines
    assert [answer["id"] for answer in answers] == list(range(7))
    assert [answer["score"] for answer in answers] == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    assert [set(answer) for answer in answers] == [{"id", "score", "outcome", "message"}] * 7


REFUSED = [
    ({"type": "contian", "value": "a"}, "Did you mean 'contains'?"),
    ({"type": "contains"}, "required"),
    ({"type": "contains", "value": "a", "wieght": 2}, "'weight'"),
    ("contains", "mapping"),
]


@pytest.mark.parametrize("format_", FORMATS)
def test_what_a_loader_would_refuse_is_an_error_that_says_why(format_: str) -> None:
    ended = ask(format_, [{"id": "x", "assertion": each, "output": "a"} for each, _ in REFUSED])
    assert ended.code == 0
    for answer, (_, says) in zip(ended.lines, REFUSED, strict=True):
        assert (answer["outcome"], answer["score"]) == ("error", 0.0)
        assert says in answer["message"]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_measure_is_taken_from_the_question(format_: str) -> None:
    question = {"id": 1, "assertion": {"type": "latency", "threshold": 100}, "output": "a"}
    measured: tuple[Json, ...] = (
        {"latency_ms": 99.5},
        {"latency_ms": 100},
        {"latency_ms": 100.5},
        {},
    )
    ended = ask(format_, [{**question, "measured": each} for each in measured])
    outcomes = [answer["outcome"] for answer in ended.lines]
    assert outcomes == ["passed", "passed", "failed", "blocked"]


def test_a_line_that_is_no_question_is_an_error_with_its_number() -> None:
    first, last = (
        json.dumps({"id": name, "assertion": {"type": "is-json"}, "output": "{}"}) for name in "ab"
    )
    lines = [first, "{", '{"id": 7}', "[1]", last]
    ended = evalcore("assert", "--format", "test-file", stdin="\n".join(lines) + "\n")
    assert ended.code == 2
    answers = [(one["id"], one["outcome"], one["score"]) for one in ended.lines]
    wrong = [(None, "error", 0.0), (7, "error", 0.0), (None, "error", 0.0)]
    assert answers == [("a", "passed", 1.0), *wrong, ("b", "passed", 1.0)]
    says = ("2: not valid JSON", "3: expected", "4: expected")
    for answer, said in zip(ended.lines[1:4], says, strict=True):
        assert f"standard input:{said}" in answer["message"]
        assert f"standard input:{said}" in ended.err
    assert "Traceback" not in ended.err


def test_a_number_that_no_suite_could_have_is_an_error_of_its_line_alone() -> None:
    question = {"assertion": {"type": "contains", "value": "a"}, "output": "a"}
    long = 10**30
    wrong = {**question, "id": 3, "assertion": {"type": "word-count", "value": long}}
    lines = [json.dumps(one) for one in ({**question, "id": long}, wrong, {**question, "id": 2})]
    ended = evalcore("assert", "--format", "workflow-harness", stdin="\n".join(lines) + "\n")
    assert ended.code == 0
    answers = [(one["id"], one["outcome"]) for one in ended.lines]
    assert answers == [(None, "error"), (3, "error"), (2, "passed")]
    assert "assertion.value: a number of more than 64 bits" in ended.lines[1]["message"]


MISSHAPEN: list[tuple[Json, str]] = [
    ({"measured": "5 ms"}, "'measured' is a mapping"),
    ({"measured": {"latency_ms": "5"}}, "measured.latency_ms"),
    ({"measured": {"cost_usd": -1}}, "must be at least 0"),
    ({"output": {"outputs": {"a": 1}, "errors": 5}}, "'errors' is"),
    ({"output": {"outputs": {"a": 1}, "metrics": 5}}, "'metrics' is"),
]


def test_evidence_of_the_wrong_shape_is_an_error_of_its_line_alone() -> None:
    question = {"id": 1, "assertion": {"type": "output.contains", "value": "a"}, "output": "a"}
    ended = ask("suite", [*({**question, **more} for more, _ in MISSHAPEN), question])
    assert ended.code == 0
    assert [one["outcome"] for one in ended.lines] == ["error"] * len(MISSHAPEN) + ["passed"]
    for answer, (_, says) in zip(ended.lines, MISSHAPEN, strict=False):
        assert says in answer["message"]


@pytest.mark.parametrize("command", [("assert", "--format", "test-file"), ("decide",)])
def test_a_list_with_a_number_that_is_too_large_is_an_error_of_its_line(
    command: tuple[str, ...],
) -> None:
    ended = evalcore(*command, stdin='[1e999]\n{"id": 2}\n')
    assert [line["outcome"] for line in ended.lines] == ["error", "error"]
    assert ended.lines[0]["message"].startswith("[0]: a number of more than 64 bits")


def test_assertions_of_an_unknown_format_are_refused() -> None:
    ended = evalcore("assert", "--format", "test-fiel")
    assert ended.code == 2
    assert "test-file" in ended.err


CONDITIONS: list[Json] = json.loads(
    (CONFORMANCE / "workflow-eval-conditions.json").read_text("utf-8")
)["cases"]
QUESTION_FIELDS = ("id", "assertion", "handle_outputs", "judge", "block_error")


def test_a_condition_has_its_checked_outcome() -> None:
    questions = [
        {name: case[name] for name in QUESTION_FIELDS if name in case} for case in CONDITIONS
    ]
    ended = ask("workflow-evals", questions)
    assert ended.code == 0
    for case, answer in zip(CONDITIONS, ended.lines, strict=True):
        assert set(answer) == {"id", "score", "outcome", "message"}
        assert (answer["id"], answer["outcome"]) == (case["id"], case["expected"])
        assert answer["score"] == (1.0 if case["expected"] == "passed" else 0.0), case["id"]

"""Test files: what becomes of each test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.assertion import Assertion
from evalcore.model.suite import Case
from evalcore.targets.work import input_messages
from tests.unit.formats.loading import cases_of, problems_of, write

TEST = "{id: a, input: hi, fixtures: {output: hello}, assertions: [{type: equals, value: hello}]}"
LIVE = "{id: a, input: hi, assertions: [{type: equals, value: hi}]}"
TARGETS = "targets: [{name: default, provider: echo}, {name: other, provider: echo}]"


def case(folder: Path, suite: str = "", test: str = TEST, **options: Any) -> Case:
    return cases_of(folder, f"{suite}\ntests: [{test}]", **options)["a"]


def assertion(folder: Path, written: str) -> Assertion:
    test = f"{{id: a, input: b, fixtures: {{output: c}}, assertions: [{written}]}}"
    return case(folder, test=test).assertions[0]


def test_a_test_carries_what_it_says_of_itself(tmp_path: Path) -> None:
    test = """{id: a, input: {q: 1}, expected_outcome: kind, expected_output: [1], tags: [t, u],
        metadata: {n: 1}, conversation_id: c7, fixtures: {output: x}, description: ignored}"""
    found = case(tmp_path, test=test)

    assert (found.input, found.criteria, found.expected_output) == ({"q": 1}, "kind", [1])
    assert (found.tags, found.metadata) == (("t", "u"), {"n": 1, "conversation_id": "c7"})


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("{type: contains, value: DENIED}", "contains-DENIED"),
        ("{type: contains-any, value: [a, b, c]}", "contains-any-3"),
        ("{type: is-json}", "is_json"),
        ("{type: is_json}", "is_json"),
        ("{type: token-usage, threshold: 3}", "token_usage"),
        ("{type: equals, value: a, name: mine}", "mine"),
    ],
)
def test_an_assertion_has_a_name(tmp_path: Path, written: str, name: str) -> None:
    assert assertion(tmp_path, written).name == name


@pytest.mark.parametrize(
    ("written", "required"),
    [
        ("required: true", 0.8),
        ("required: false", None),
        ("required: 1", 1.0),
        ("required: 0.6", 0.6),
        ("min_score: 0.6", 0.6),
    ],
)
def test_required_is_a_score(tmp_path: Path, written: str, required: float | None) -> None:
    found = assertion(tmp_path, f"{{type: equals, value: a, {written}}}")

    assert found.required == required
    assert type(found.required) is type(required)


@pytest.mark.parametrize(
    ("written", "check", "params"),
    [
        ("{type: icontains, value: a}", "contains", {"value": "a", "fold": True}),
        ("{type: equals, value: a}", "equals", {"value": "a", "trim": "ecmascript"}),
        ("{type: regex, value: a, flags: im}", "regex", {"flags": "im", "dialect": "ecmascript"}),
        ("{type: rubrics, criteria: [kind]}", "rubrics", {"votes": 1, "aggregation": "mean"}),
        ("{type: similar, value: [a], threshold: 0.5}", "similar", {"value": ["a"]}),
        ("{type: cost, budget: 0.5}", "cost", {"threshold": 0.5}),
        ("{type: token_usage, max_input: 7}", "token-maxima", {"max_input": 7}),
        ("{type: code_grader, command: x, timeout: 2}", "code-grader", {"timeout_ms": 2000}),
    ],
)
def test_an_assertion_becomes_a_check(
    tmp_path: Path, written: str, check: str, params: dict[str, Any]
) -> None:
    found = assertion(tmp_path, written)

    assert found.check == check
    assert {key: found.params[key] for key in params} == params


def test_assertions_of_the_test_come_before_those_of_the_suite(tmp_path: Path) -> None:
    suite = "assertions: [{type: equals, value: suite}]"
    test = """{id: a, input: b, fixtures: {output: c},
        assertions: [{type: equals, value: own}],
        execution: {assertions: [{type: equals, value: execution}]}}"""

    values = [one.params["value"] for one in case(tmp_path, suite, test).assertions]

    assert values == ["own", "execution", "suite"]


@pytest.mark.parametrize("key", ["assert", "assertions"])
def test_assert_is_another_name_of_assertions(tmp_path: Path, key: str) -> None:
    suite = f"{key}: [{{type: equals, value: suite}}]"
    test = f"{{id: a, input: b, fixtures: {{output: c}}, {key}: [{{type: is-json}}]}}"

    assert len(case(tmp_path, suite, test).assertions) == 2


@pytest.mark.parametrize(
    ("suite", "test"),
    [
        pytest.param("", "execution: {skip_defaults: true}", id="at the test"),
        pytest.param("execution: {skip_defaults: true}", "description: x", id="at the suite"),
    ],
)
def test_skip_defaults_drops_assertions_input_and_files(
    tmp_path: Path, suite: str, test: str
) -> None:
    (tmp_path / "notes.md").write_text("notes")
    defaults = "input: before\ninput_files: [notes.md]\nassertions: [{type: is-json}]"
    own = "fixtures: {output: c}, assert: [{type: cost, threshold: 1}]"
    written = f"{{id: a, input: b, {own}, {test}}}"
    found = case(tmp_path, f"{defaults}\n{suite}", written)

    assert [one.type for one in found.assertions] == ["cost"]
    assert found.input == "b"


def test_without_assertions_a_grader_reads_the_criteria(tmp_path: Path) -> None:
    test = "{id: a, input: b, criteria: is kind, fixtures: {output: c}}"
    (only,) = case(tmp_path, test=test).assertions

    assert (only.type, only.name, only.check) == ("llm-grader", "llm_grader", "llm-grader")


@pytest.mark.parametrize(
    ("own", "messages"),
    [
        ("hello", [{"role": "user", "content": "hello"}]),
        ("{q: é}", [{"role": "user", "content": '{"q": "é"}'}]),
        ("[{role: system, content: s}, {role: user, content: u}]", None),
    ],
    ids=["text", "object", "messages"],
)
def test_the_suites_input_stands_before_the_tests(
    tmp_path: Path, own: str, messages: list[Any] | None
) -> None:
    suite = "input: [{role: system, content: first}]"
    test = f"{{id: a, input: {own}, fixtures: {{output: x}}, criteria: c}}"
    messages = messages or [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
    ]

    assert case(tmp_path, suite, test).input == [{"role": "system", "content": "first"}, *messages]


def test_a_tests_own_input_files_replace_the_suites(tmp_path: Path) -> None:
    (tmp_path / "s.md").write_text("s")
    (tmp_path / "t.md").write_text("t")
    test = "{id: a, input: look, input_files: [t.md], fixtures: {output: x}, criteria: c}"
    (message,) = case(tmp_path, "input_files: [s.md]", test).input

    assert message["content"] == [
        {"type": "file", "value": "t.md"},
        {"type": "text", "value": "look"},
    ]


def test_a_test_may_name_its_target_and_the_caller_overrides_it(tmp_path: Path) -> None:
    test = LIVE[:-1] + ", execution: {target: other}}"

    assert case(tmp_path, TARGETS, test).target == "other"
    assert case(tmp_path, TARGETS, test, target="default").target is None


def test_a_test_that_nothing_answers_names_the_three_ways(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, f"tests: [{LIVE}]")

    for way in ("fixtures: {output: …}", "`execution.target`", "--target NAME"):
        assert way in problem.message


@pytest.mark.parametrize(
    ("suite", "test"),
    [("workspace: {template: t}", ""), ("", ", workspace: {template: t}")],
    ids=["suite", "test"],
)
def test_a_workspace_is_the_suites_or_the_tests_own(tmp_path: Path, suite: str, test: str) -> None:
    (tmp_path / "t").mkdir()
    found = case(tmp_path, f"{TARGETS}\n{suite}", LIVE[:-1] + test + "}")

    assert found.workspace is not None
    assert found.workspace["template"] == "t"
    assert found.workspace.get("isolation") == ("per_test" if test else None)


def test_the_expected_output_has_the_text_of_its_files(tmp_path: Path) -> None:
    write(tmp_path, {"answer.md": "\ufeffThe sky is blue.", "big.md": "x" * 70_000})
    (tmp_path / "image.bin").write_bytes(b"\xff\xfe")
    names = ("answer.md", "file://answer.md", "big.md", "image.bin", "https://a.example/b.md")
    content = ", ".join(f"{{type: file, value: '{name}'}}" for name in names)
    test = f"""{{id: a, input: b, fixtures: {{output: c}},
        expected_output: [{{role: assistant, content: [{content}]}}]}}"""
    (message,) = case(tmp_path, test=test).expected_output

    assert [one["value"] for one in message["content"]] == [
        "The sky is blue.", "The sky is blue.", "big.md", "image.bin", "https://a.example/b.md",
    ]  # fmt: skip


CHOOSING = "{id: a, input: hi, execution: {targets: [%s]}, assertions: [{type: equals, value: hi}]}"


@pytest.mark.parametrize(
    ("chosen", "option", "targets"),
    [
        pytest.param("other", None, ("other",), id="one of the suite's"),
        pytest.param("other, default", None, ("other", "default"), id="several"),
        pytest.param("other", "default", (), id="the caller's goes before"),
    ],
)
def test_a_test_chooses_among_the_suites_targets(
    tmp_path: Path, chosen: str, option: str | None, targets: tuple[str, ...]
) -> None:
    suite = f"{TARGETS}\nexecution: {{targets: [other, default]}}"

    assert case(tmp_path, suite, CHOOSING % chosen, target=option).targets == targets


@pytest.mark.parametrize(
    ("suite", "test", "message"),
    [
        pytest.param("", CHOOSING % "other", "and the suite has none", id="no variants"),
    ],
)
def test_targets_of_a_test_that_choose_nothing_are_a_mistake(
    tmp_path: Path, suite: str, test: str, message: str
) -> None:
    (problem,) = problems_of(tmp_path, f"{TARGETS}\n{suite}\ntests: [{test}]")

    assert problem.path.startswith("tests[0].execution.targets")
    assert message in problem.message


def test_the_key_by_which_editors_find_a_schema_has_no_effect(tmp_path: Path) -> None:
    assert case(tmp_path, "$schema: ./test-file.json").id == "a"


def test_parts_for_aliases_stand_below_keys_of_their_own(tmp_path: Path) -> None:
    test = "{id: a, input: b, fixtures: {output: c}, assertions: [*check, {<<: *check, value: d}]}"
    found = case(tmp_path, "x-check: &check {type: contains, value: c}", test)

    assert [assertion.params["value"] for assertion in found.assertions] == ["c", "d"]


@pytest.mark.parametrize(
    ("written", "type_", "name", "params"),
    [
        ("{type: not-contains, value: x}", "not-contains", "not-contains-x", {"value": "x"}),
        ("{type: not-contains-any, value: [a, b]}", "not-contains-any", "not-contains-any-2", {}),
    ],
)
def test_a_type_may_be_negated_by_its_word(
    tmp_path: Path, written: str, type_: str, name: str, params: dict[str, Any]
) -> None:
    text = f"tests: [{{id: a, input: b, fixtures: {{output: x}}, assertions: [{written}]}}]"
    (found,) = cases_of(tmp_path, text)["a"].assertions

    assert (found.type, found.name, found.negate) == (type_, name, True)
    assert {key: found.params[key] for key in params} == params


@pytest.mark.parametrize(
    ("assertions", "path", "message"),
    [
        ("{type: not-contains, value: x, negate: true}", "[0].negate", "which negates; keep one"),
        ("{type: starts-with, value: '  '}", "[0].value", "'starts-with' can never fail"),
        ("{type: contains-any, value: [a, '']}", "[0].value", "'contains-any' can never fail"),
        ("{type: composite, assertions: [{type: ends-with, value: ' '}]}",
         "[0].assertions[0].value", "can never fail"),
    ],
)  # fmt: skip
def test_an_assertion_that_leaves_no_choice_is_a_mistake(
    tmp_path: Path, assertions: str, path: str, message: str
) -> None:
    test = f"{{id: a, input: b, expected_output: {{a: 1}}, assertions: [{assertions}]}}"
    text = f"targets: [{{name: default, provider: echo}}]\ntests: [{test}]"
    (problem,) = problems_of(tmp_path, text)

    assert problem.path == "tests[0]" + (f".assertions{path}" if path else "")
    assert message in problem.message


IMAGE = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    ("written", "messages"),
    [
        pytest.param(
            [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
            [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
            id="the role developer",
        ),
        pytest.param(
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
                {"role": "assistant", "content": None},
            ],
            [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]},
                {"role": "assistant", "content": ""},
            ],
            id="content null",
        ),
        pytest.param(
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is it?"},
                        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
                        {"type": "input_text", "text": "and"},
                        {"type": "input_image", "image_url": "https://x.example/a.png"},
                    ],
                }
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "value": "What is it?"},
                        {"type": "image", "value": IMAGE},
                        {"type": "text", "value": "and"},
                        {"type": "image", "value": "https://x.example/a.png"},
                    ],
                }
            ],
            id="content parts",
        ),
        pytest.param(
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                    }
                ],
            },
            [{"role": "user", "content": [{"type": "image", "value": IMAGE}]}],
            id="Anthropic's image",
        ),
    ],
)
def test_messages_may_have_the_forms_of_model_apis(
    tmp_path: Path, written: Any, messages: Any
) -> None:
    row = {"id": "a", "input": written, "output": "x", "criteria": "c"}
    found = cases_of(tmp_path, json.dumps(row), "rows.jsonl")["a"]

    assert found.input == messages
    assert input_messages(written if isinstance(written, list) else [written], any_value=False) == (
        tuple(messages)
    )


def test_a_file_is_read_wherever_a_text_may_stand(tmp_path: Path) -> None:
    write(tmp_path, {"q.txt": "Who?\n", "a.txt": "Ada"})
    text = """\
        targets: [{name: default, provider: echo}]
        execution: {evaluators: [{type: contains, value: "file://a.txt"}]}
        tests:
        - id: a
          input: "file://q.txt"
          criteria: "file://a.txt"
          expected_output: "file://a.txt"
          assertions:
          - {type: contains-any, value: ["file://a.txt", b]}
          - {type: llm-grader}
        - id: b
          input: [{role: user, content: "file://q.txt"},
                  {role: user, content: [{type: text, value: "file://a.txt"}]}]
          expected_output: x
          criteria: c
        - id: c
          input: {question: "file://q.txt"}
          fixtures: {output: "file://a.txt"}
          execution: {assertions: [{type: equals, value: "file://a.txt"}]}
        """
    first, second, third = cases_of(tmp_path, text).values()
    assert [each.params["value"] for each in third.assertions] == ["Ada", "Ada"]
    assert third.fixture is not None
    assert (third.input, third.fixture.output) == ({"question": "Who?\n"}, "Ada")

    assert (first.input, first.criteria, first.expected_output) == ("Who?\n", "Ada", "Ada")
    assert first.assertions[0].params["values"] == ["Ada", "b"]
    assert first.assertions[-1].params["value"] == "Ada"
    assert [message["content"] for message in second.input] == [
        "Who?\n",
        [{"type": "text", "value": "Ada"}],
    ]


@pytest.mark.parametrize("name", ["none.txt", "../above.txt", "binary.txt"])
def test_a_file_that_cannot_be_read_as_text_is_a_mistake(tmp_path: Path, name: str) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (tmp_path / "above.txt").write_text("secret")
    (suite / "binary.txt").write_bytes(b"\xff\xfe\xff")
    (suite / ".git").mkdir()
    text = f"tests: [{{id: a, input: 'file://{name}', criteria: c, fixtures: {{output: x}}}}]"
    (problem,) = problems_of(suite, text)

    assert problem.path == "tests[0].input"


def test_a_file_in_a_row_of_data_is_a_text(tmp_path: Path) -> None:
    write(tmp_path, {"q.txt": "secret"})
    row = {"id": "a", "input": "file://q.txt", "output": "x", "criteria": "c"}

    assert cases_of(tmp_path, json.dumps(row), "rows.jsonl")["a"].input == "file://q.txt"

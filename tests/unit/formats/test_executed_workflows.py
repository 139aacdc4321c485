"""Workflow files whose cases have to be executed: when that can be, and what is checked then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import LoadError
from evalcore.formats.workflow_file import read_registered_workflow
from evalcore.model.suite import Suite
from tests.unit.formats.loading import cases_of, load_text, places_of, problems_of, write

CODE = """\
blocks:
  first: {type: code, code: "def main(data): return 1"}
  second: {type: code, code: "def main(data): return 2", depends: first}
workflow: {entry: first}
eval:
  cases:
    - id: executed
      inputs: {n: 1}
      expected: {second: [{type: equals, value: "2"}]}
    - id: given
      fixtures: {second: "2"}
      expected: {second: [{type: equals, value: "2"}]}
    - id: partly
      fixtures: {first: {output: "1", metrics: {latency_ms: 5}}}
      expected: {second: [{type: equals, value: "2"}]}
"""
MODEL = """\
blocks:
  a: {type: llm, %sprompt_template: "On {topic}"}
workflow: {name: w, entry: a}
%s
eval:
  cases:
    - {id: live, inputs: {topic: x}, expected: {a: [{type: contains, value: x}]}}
    - {id: given, fixtures: {a: x}, expected: {a: [{type: contains, value: x}]}}
"""
NO_EXECUTOR = (
    "Case 'live' requires an executor (no fixtures for all expected blocks) "
    "but no executor was provided."
)


def options_of(suite: Suite) -> dict[str, Any]:
    return dict(suite.definition.targets["workflow"].options)


def test_a_case_has_fixtures_is_executed_or_both(tmp_path: Path) -> None:
    cases = cases_of(tmp_path, CODE)

    assert cases["given"].fixture is not None
    assert (cases["executed"].fixture, cases["executed"].block_fixtures) == (None, None)
    partly = cases["partly"]
    assert partly.fixture is None
    assert partly.block_fixtures is not None
    assert partly.block_fixtures.outputs == {"first": "1"}
    assert partly.block_fixtures.block_metrics["first"].latency_ms == 5
    assert {case.reason_not_executable for case in cases.values()} == {None}


@pytest.mark.parametrize(
    ("soul", "souls"),
    [
        pytest.param("", "", id="no soul"),
        pytest.param("soul_ref: analyst, ", "", id="a soul that is nowhere"),
        pytest.param("soul_ref: s, ", "souls: {s: {model_name: m}}", id="no provider"),
    ],
)
def test_without_a_provider_there_is_no_executor(tmp_path: Path, soul: str, souls: str) -> None:
    cases = cases_of(tmp_path, MODEL % (soul, souls))

    assert cases["live"].reason_not_executable == NO_EXECUTOR
    assert cases["given"].fixture is not None


@pytest.mark.parametrize(
    ("souls", "options"),
    [
        pytest.param("souls: {s: {model_name: m, provider: openai}}", {}, id="a soul names one"),
        pytest.param(
            "souls: {s: {model_name: m}}",
            {"environment": {"OPENAI_API_KEY": "k"}},
            id="the environment knows one",
        ),
        pytest.param(
            "souls: {s: {}}\nevalcore: {variants: [{id: v, config: {provider: openai, model: m}}]}",
            {},
            id="a variant names one",
        ),
    ],
)
def test_with_a_provider_a_model_is_asked(
    tmp_path: Path, souls: str, options: dict[str, Any]
) -> None:
    case = cases_of(tmp_path, MODEL % ("soul_ref: s, ", souls), **options)["live"]

    assert case.reason_not_executable is None


def test_references_are_not_checked_if_every_case_has_fixtures(tmp_path: Path) -> None:
    text = """\
        blocks: {a: {type: llm, soul_ref: nobody, error_route: nowhere}}
        workflow: {entry: gone, transitions: [{from: a, to: lost}]}
        eval: {cases: [{id: g, fixtures: {a: x}, expected: {a: [{type: contains, value: x}]}}]}
        """
    assert list(cases_of(tmp_path, text)) == ["g"]


def test_every_wrong_reference_is_reported_with_its_line(tmp_path: Path) -> None:
    text = """\
blocks:
  first:
    type: code
    code: "def main(data): return 1"
    inputs: {x: {from: scnd.value}, y: {from: workflow.n}}
    error_route: rescue
    routes:
      - {case: a, when: {conditions: [{eval_key: k, operator: equalz, value: 1}]}, goto: secnd}
      - {case: b, default: true, goto: second}
  second: {type: llm, soul_ref: writr, prompt_template: x}
  third: {type: loop, inner_block_refs: [first, third]}
  fourth: {type: code}
souls: {writer: {provider: opena, model_name: m}}
workflow:
  entry: frst
  transitions: [{from: first, to: secod}]
  conditional_transitions: [{from: first, good: sec, default: null}]
eval:
  cases: [{id: c, expected: {second: [{type: equals, value: "2"}]}}]
"""
    found = problems_of(tmp_path, text, environment={"OPENAI_API_KEY": "k"})

    assert places_of(found) == [
        (5, "blocks.first.inputs.x"),
        (6, "blocks.first.error_route"),
        (8, "blocks.first.routes[0].goto"),
        (8, "blocks.first.routes[0].when.conditions[0].operator"),
        (10, "blocks.second.soul_ref"),
        (11, "blocks.third.inner_block_refs[1]"),
        (12, "blocks.fourth"),
        (15, "workflow.entry"),
        (16, "workflow.transitions[0].to"),
        (17, "workflow.conditional_transitions[0].good"),
    ]
    told = "\n".join(problem.message for problem in found)
    for hint in ("'second'", "'equals'", "'writer'", "'first'"):
        assert f"Did you mean {hint}?" in told
    assert "needs 'code' or 'callable'" in told


@pytest.mark.parametrize(
    ("block", "line", "path"),
    [
        ("retry_config: {max_attempts: 0}", 4, "blocks.a.retry_config.max_attempts"),
        ("retry_config: {backof: fixed}", 4, "blocks.a.retry_config.backof"),
        ("limits: {on_exceed: stop}", 4, "blocks.a.limits.on_exceed"),
        ("inputs: {x: {form: b}}", 4, "blocks.a.inputs.x.from"),
        ("routes: [{case: a, default: true}]", 4, "blocks.a.routes[0].goto"),
        ("outputs: {n: strng}", 4, "blocks.a.outputs.n"),
        ("exit_conditions: [{regex: '(', exit_handle: x}]", 4, "blocks.a.exit_conditions[0].regex"),
        ("assertions: [{type: contian, value: x}]", 4, "blocks.a.assertions[0].type"),
        ("callable: mine:work", 4, "blocks.a.callable"),
    ],
)
def test_the_whole_shape_is_checked_where_a_case_is_executed(
    tmp_path: Path, block: str, line: int, path: str
) -> None:
    text = f"""\
blocks:
  a:
    type: code
    {block}
    code: "def main(data): return 1"
eval: {{cases: [{{id: c, expected: {{a: [{{type: equals, value: "1"}}]}}}}]}}
"""
    assert (line, path) in places_of(problems_of(tmp_path, text))


def test_only_selected_cases_make_a_workflow_run(tmp_path: Path) -> None:
    text = CODE.replace("entry: first", "entry: frst")

    assert len(load_text(tmp_path, text, cases=frozenset({"given"})).cases) == 1
    found = problems_of(tmp_path, text, cases=frozenset({"executed"}))
    assert places_of(found) == [(4, "workflow.entry")]


SUB = """\
blocks:
  sub: {type: workflow, workflow_ref: %s}
eval: {cases: [{id: c, expected: {sub: [{type: equals, value: "1"}]}}]}
"""
CHILD = 'blocks: {one: {type: code, code: "def main(data): return 1"}}\n'


@pytest.mark.parametrize(
    ("reference", "file"),
    [
        ("child.yaml", "child.yaml"),
        ("parts/child.yaml", "parts/child.yaml"),
        ("child", "child.yaml"),
        ("child", "custom/workflows/child.yaml"),
        ("custom/workflows/child", "custom/workflows/child.yml"),
    ],
)
def test_a_sub_workflow_is_stored_with_the_suite(tmp_path: Path, reference: str, file: str) -> None:
    write(tmp_path, {file: CHILD})
    options = options_of(load_text(tmp_path, SUB % reference))

    assert list(options["workflows"]) == [file]
    assert options["definition"]["blocks"]["sub"]["workflow_ref"] == file


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("../outside.yaml", "lies outside"),
        ("missing.yaml", "there is no file 'missing.yaml'"),
        ("broken.yaml", "is no workflow: it has no 'blocks'"),
    ],
)
def test_a_sub_workflow_that_cannot_be_read_is_a_mistake(
    tmp_path: Path, reference: str, message: str
) -> None:
    folder = tmp_path / "suite"
    write(folder, {"broken.yaml": "a: 1\n"})
    write(tmp_path, {"outside.yaml": CHILD})
    (problem,) = problems_of(folder, SUB % reference)

    assert message in problem.message
    assert (problem.line, problem.path) == (2, "blocks.sub.workflow_ref")


def test_a_provider_is_an_entry_of_the_nearest_targets_file(tmp_path: Path) -> None:
    write(tmp_path, {"targets.yaml": "- {name: fake, provider: mock, response: hello}\n"})
    text = MODEL % ("soul_ref: s, ", "souls: {s: {provider: fake}}")

    assert options_of(load_text(tmp_path, text))["providers"] == {
        "fake": {"kind": "mock", "options": {"response": "hello"}}
    }


def test_a_variant_is_checked_as_what_it_makes_of_the_workflow(tmp_path: Path) -> None:
    section = """
evalcore:
  variants:
    - {id: base}
    - {id: a, config: {temprature: 1}}
    - {id: b, config: {workflow: {entry: frst}}}
    - {id: c, config: {blocks: {first: {code: "def main(data): return 3"}}}}
"""
    found = problems_of(tmp_path, CODE + section)

    assert found[0].path == "evalcore.variants[1].config.temprature"
    assert "Did you mean 'temperature'?" in found[0].message
    entry = problems_of(tmp_path, CODE + section.replace("temprature", "temperature"))
    assert places_of(entry) == [(21, "evalcore.variants[2].config.workflow.entry")]


NAMED = """\
blocks:
  a: {type: llm, soul_ref: s, prompt_template: 'file://prompt.txt'}
  b: {type: dispatch, soul_ref: s, exits: [{id: x, task: 'file://prompt.txt'}]}
souls: {s: {provider: openai, system_prompt: 'file://system.txt'}}
workflow: {entry: a, transitions: [{from: a, to: b}]}
eval:
  cases:
  - id: live
    inputs: {topic: 'file://topic.txt'}
    expected:
      a: [{type: contains, value: 'file://topic.txt'}]
  - id: given
    fixtures: {a: 'file://topic.txt', b: {output: 'file://topic.txt'}}
    expected:
      a: [{type: contains-any, value: ['file://topic.txt']}]
"""
TEXTS = {"prompt.txt": "On {topic}", "system.txt": "Be brief", "topic.txt": "Ada"}


def test_a_file_is_read_wherever_a_text_may_stand(tmp_path: Path) -> None:
    write(tmp_path, TEXTS)
    suite = load_text(tmp_path, NAMED)
    live, given = suite.cases
    definition = options_of(suite)["definition"]

    assert live.input == {"topic": "Ada"}
    assert live.assertions[0].params["value"] == "Ada"
    assert given.assertions[0].params["values"] == ["Ada"]
    assert given.fixture is not None
    assert given.fixture.outputs == {"a": "Ada", "b": "Ada"}
    assert definition["blocks"]["a"]["prompt_template"] == "On {topic}"
    assert definition["blocks"]["b"]["exits"][0]["task"] == "On {topic}"
    assert definition["souls"]["s"]["system_prompt"] == "Be brief"


def test_a_registered_workflow_names_no_files(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, TEXTS)
    with pytest.raises(LoadError, match="is not read here: write the text itself") as raised:
        read_registered_workflow(NAMED.partition("eval:")[0])

    assert places_of(raised.value.problems) == [
        (2, "blocks.a.prompt_template"),
        (3, "blocks.b.exits[0].task"),
        (4, "souls.s.system_prompt"),
    ]


PROMPTS = """\
blocks:
  first: {type: llm, prompt_template: "PROMPT"}
  second: {type: llm, prompt_template: "{first} {first.part} {topic}", error_route: rescue}
  rescue: {type: llm, prompt_template: "{second.error.message} {__error__second}"}
  apart: {type: dispatch, exits: [{id: x, task: "LATER"}]}
  round: {type: loop, inner_block_refs: [inner, last], carry_context: true}
  inner: {type: llm, prompt_template: "{round_round} {previous_round_context} {last} {apart.x}"}
  last: {type: llm, inputs: {mine: first}, prompt_template: "{mine} {inner}"}
workflow:
  entry: first
  transitions: [{from: first, to: second}, {from: second, to: apart}, {from: apart, to: round}]
inputs: {known: {type: string}}
eval:
  cases:
  - id: live
    inputs: {topic: a, person: {name: b}}
    expected: {first: [{type: contains, value: x}]}
  - {id: other, inputs: {only: c}, expected: {first: [{type: contains, value: x}]}}
"""


@pytest.mark.parametrize(
    "prompt",
    [
        "{topic}",
        "{person.name}",
        "{only}",
        "{known}",
        "{workflow.only}",
        "{{topci}}",
        '{"a": 1}',
    ],
)
def test_a_placeholder_names_an_input_or_a_block_before(tmp_path: Path, prompt: str) -> None:
    text = PROMPTS.replace('"PROMPT"', f"'{prompt}'").replace("LATER", "{first} {second}")

    assert len(cases_of(tmp_path, text, environment={"OPENAI_API_KEY": "k"})) == 2


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        pytest.param("{topci}", "{topci}. Did you mean 'topic'?", id="nothing has the name"),
        pytest.param("{workflow.topci}", "{workflow.topci}", id="no input has the name"),
        pytest.param("{apart}", "{apart}. Known: known, only, person, topic.", id="a later block"),
        pytest.param("{apart.x}", "{apart.x}", id="an exit of a later block"),
        pytest.param("{first}", "{first}", id="the block itself"),
    ],
)
def test_an_unknown_placeholder_is_a_mistake_with_its_line(
    tmp_path: Path, prompt: str, message: str
) -> None:
    text = PROMPTS.replace("PROMPT", prompt).replace("LATER", "{lst}")
    found = problems_of(tmp_path, text, environment={"OPENAI_API_KEY": "k"})

    assert places_of(found) == [
        (2, "blocks.first.prompt_template"),
        (5, "blocks.apart.exits[0].task"),
    ]
    assert f"unknown placeholder {message}" in found[0].message
    assert "a literal brace is written {{ or }}" in found[0].message.lower()


def test_an_unknown_placeholder_of_a_request_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    text = """\
        blocks:
          a:
            type: http
            url: "${{ API_URL }}/{topic}/{one}"
            headers: {X: "${{ API_KEY }} {two}"}
            body: {list: [{deep: "{three}"}, "$${{ text }}"]}
        workflow: {entry: a}
        eval: {cases: [{id: live, inputs: {topic: x}, expected: {a: [{type: contains, value: x}]}}]}
        """
    assert places_of(problems_of(tmp_path, text)) == [
        (4, "blocks.a.url"),
        (5, "blocks.a.headers.X"),
        (6, "blocks.a.body.list[0].deep"),
    ]


@pytest.mark.parametrize("blocks", ["extract", [None, None], 5], ids=str)
def test_blocks_that_are_no_mapping_are_a_mistake(blocks: Any) -> None:
    with pytest.raises(LoadError, match="expected a mapping of ids to blocks, got"):
        read_registered_workflow({"blocks": blocks})

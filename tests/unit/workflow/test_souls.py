"""The defaults of a workflow's inputs and model."""

from __future__ import annotations

from tests.unit.workflow.running import run


def test_inputs_have_declared_defaults() -> None:
    text = """
    inputs: {topic: {type: string, default: tides}, depth: {type: number, required: false}}
    blocks: {a: {type: llm, prompt_template: "{topic}, {workflow.topic}"}}
    workflow: {entry: a}
    """
    values = [run(text, given).left.value for given in ({}, {"topic": "moons"})]

    assert values == ["tides, tides", "moons, moons"]


def test_a_sub_workflow_has_the_defaults_of_its_inputs() -> None:
    child = """
    inputs: {a: {type: number, default: 3}, b: {type: number}}
    blocks: {sum: {type: code, code: "def main(data): return data['a'] + data['b']"}}
    workflow: {entry: sum}
    """
    parent = """
    blocks: {call: {type: workflow, workflow_ref: child%s}}
    workflow: {entry: call}
    """
    workflows = {"child": child}
    assert run(parent % ", inputs: {b: workflow.b}", {"b": 4}, workflows=workflows).left.value == 7
    assert "needs the input 'b'" in run(parent % "", workflows=workflows).message


def test_souls_without_a_model_have_that_of_the_workflow() -> None:
    text = """
    config: {model_name: house}
    souls: {own: {model: mine}, plain: {system_prompt: x}}
    blocks:
      a: {type: linear, soul: own}
      b: {type: linear, soul_ref: plain, depends: a}
      c: {type: linear, depends: b}
    workflow: {entry: a, transitions: [{from: c, to: END}]}
    """
    assert [soul.model_name for soul, _ in run(text).asked] == ["mine", "house", "house"]


def test_null_is_the_absence_of_an_optional_key() -> None:
    text = """
    souls: {s: {kind: null, model_name: null, max_tool_iterations: null, system_prompt: null}}
    blocks:
      a:
        type: code
        code: "def main(data): return {'go': 'b'}"
        callable: null
        depends: null
        timeout_seconds: null
        stateful: null
        output_conditions: [{case_id: b, condition_group: null, default: true}]
      b: {type: llm, soul_ref: s, prompt_template: Hello, exits: [{id: x, soul_ref: null}]}
    workflow: {entry: a, conditional_transitions: [{from: a, b: b, default: null}]}
    """
    assert run(text).blocks() == ["a", "b"]

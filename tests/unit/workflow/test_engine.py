"""The way through a workflow: routes, retries, error routes, limits, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Metrics
from evalcore.workflow.context import SoulAnswer
from evalcore.workflow.definition import Soul
from evalcore.workflow.engine import Fixtures
from tests.unit.workflow.running import run

ASK = "type: llm, prompt_template"


def test_the_outputs_of_blocks_become_the_inputs_of_others() -> None:
    ran = run(
        """
        blocks:
          first: {type: llm, prompt_template: "On {topic}"}
          second: {type: linear, inputs: {text: {from: first}, n: {from: workflow.n}}}
        workflow: {entry: first, transitions: [{from: first, to: second}, {from: second, to: null}]}
        """,
        {"topic": "tides", "n": 2},
    )
    assert ran.outputs == {"first": "On tides", "second": '{"text": "On tides", "n": 2}'}
    assert ran.left.value == '{"text": "On tides", "n": 2}'


@pytest.mark.parametrize(
    ("verdict", "block", "taken"),
    [
        pytest.param("PASS", "a: {type: gate, eval_key: workflow.t, pass: x, fail: y}", "x"),
        pytest.param("pass\nbut long", "a: {type: gate, eval_key: workflow.t, pass: x}", "x"),
        pytest.param("**Passed**", "a: {type: gate, eval_key: workflow.t, pass: x, fail: y}", "x"),
        pytest.param("FAIL: no", "a: {type: gate, eval_key: workflow.t, pass: x, fail: y}", "y"),
        pytest.param("passable", "a: {type: gate, eval_key: workflow.t, pass: x, fail: y}", "y"),
    ],
)
def test_a_gate_goes_where_its_first_line_says(verdict: str, block: str, taken: str) -> None:
    ran = run(
        f"""
        blocks:
          {block}
          x: {{{ASK}: end}}
          y: {{{ASK}: end}}
        workflow: {{entry: a}}
        """,
        {"t": "text"},
        model=lambda _, prompt: verdict if "text" in prompt else "done",
    )
    assert ran.blocks() == ["a", taken]


ROUTED = """
blocks:
  a: {%s}
  x: {type: llm, prompt_template: x}
  y: {type: llm, prompt_template: y}
  z: {type: llm, prompt_template: z}
workflow: {entry: a, %s}
"""
EXITS = "type: llm, prompt_template: '{said}', exit_conditions: "
COND = "conditional_transitions: [{from: a, left: x, right: y, default: z}]"
PLAIN = "transitions: [{from: a, to: y}]"
CASES = (
    "output_conditions: [{case_id: left, condition_group: {conditions: "
    "[{eval_key: k, operator: gt, value: 2}]}}, {case_id: right, default: true}]"
)


@pytest.mark.parametrize(
    ("block", "graph", "said", "taken"),
    [
        pytest.param(
            EXITS + "[{contains: go left, exit_handle: left}]", COND, "do go left", "x", id="exit"
        ),
        pytest.param(
            EXITS + "[{regex: '^r', exit_handle: right}]", COND, "right it is", "y", id="pattern"
        ),
        pytest.param(
            EXITS + "[{contains: go left, exit_handle: left}]", COND, "other", "z", id="default"
        ),
        pytest.param(
            f"type: llm, prompt_template: '{{said}}', {CASES}", COND, '{"k": 3}', "x", id="case"
        ),
        pytest.param(
            "type: llm, prompt_template: '{said}', routes: [{case: c, when: {combinator: or, "
            "conditions: [{eval_key: k, operator: equals, value: b}, "
            "{eval_key: k, operator: equals, value: a}]}, goto: x}, "
            "{case: d, default: true, goto: z}]",
            PLAIN,
            '{"k": "a"}',
            "x",
            id="route",
        ),
        pytest.param(
            "type: llm, prompt_template: '{said}'",
            COND,
            '{"exit_handle": "right"}',
            "y",
            id="exit handle in the output",
        ),
        pytest.param(
            "type: llm, prompt_template: '{said}'", COND, " left\n", "x", id="the output decides"
        ),
        pytest.param("type: llm, prompt_template: '{said}'", "", "any", None, id="end"),
    ],
)
def test_the_next_block(block: str, graph: str, said: str, taken: str | None) -> None:
    ran = run(ROUTED % (block, graph), {"said": said})

    assert ran.blocks()[1:] == ([] if taken is None else [taken])


def test_depends_stands_for_transitions() -> None:
    ran = run(
        """
        blocks:
          last: {type: llm, prompt_template: c, depends: [first, middle]}
          first: {type: llm, prompt_template: a}
          middle: {type: llm, prompt_template: b, depends: first}
        workflow: {entry: first}
        """
    )
    assert ran.blocks() == ["first", "middle", "last"]


def test_a_cycle_ends_with_a_clear_error() -> None:
    ran = run(
        """
        blocks:
          a: {type: llm, prompt_template: x}
          b: {type: llm, prompt_template: x, depends: a}
        workflow: {entry: a, transitions: [{from: a, to: b}, {from: b, to: a}]}
        """
    )
    assert "did not end within 100 blocks; it goes round: … a → b → a → b" in ran.message
    assert len(ran.blocks()) == 100


def test_a_failing_block_fails_the_workflow_and_leaves_its_events() -> None:
    ran = run(
        """
        blocks:
          good: {type: llm, prompt_template: fine}
          bad: {type: llm, prompt_template: "{nothing}", depends: good}
        workflow: {entry: good}
        """
    )
    assert ran.message.startswith("block 'bad': prompt_template: unknown placeholder {nothing}")
    assert [event.sequence for event in ran.events] == list(range(1, len(ran.events) + 1))
    assert ran.events[-1].type == "workflow_failed"
    assert ran.snapshot.state == "failed"
    assert ran.snapshot.outputs == {"good": "fine"}
    assert ran.snapshot.error == ran.message


def test_an_error_route_goes_on_and_knows_the_error() -> None:
    ran = run(
        """
        blocks:
          bad: {type: llm, prompt_template: "{nothing}", error_route: rescue}
          rescue: {type: llm, prompt_template: "{bad.error.type}"}
        workflow: {entry: bad, transitions: [{from: bad, to: null}]}
        """
    )
    assert ran.outputs == {"rescue": "template"}
    assert len(ran.left.errors) == 1
    assert ran.left.errors[0].startswith("block 'bad': prompt_template: unknown placeholder")


FLAKY = """
blocks:
  a:
    type: code
    code: |
      import os
      def main(data):
          with open("tries", "a") as file:
              file.write("x")
          tries = os.path.getsize("tries")
          if tries < %d:
              raise %s("try " + str(tries))
          return tries
    retry_config: {max_attempts: 3, backoff_base_seconds: 0%s}
workflow: {entry: a}
"""


def test_a_block_is_retried_until_it_answers(tmp_path: Any) -> None:
    ran = run(FLAKY % (3, "ValueError", ""), folder=tmp_path)

    assert ran.left.value == 3
    assert [event.data["attempt"] for event in ran.of("block_retried")] == [1, 2]
    assert "ValueError: try 1" in ran.left.errors[0]


@pytest.mark.parametrize("name", ["KeyError", "key", "keyerror"])
def test_an_error_that_is_not_to_be_retried_is_not(tmp_path: Any, name: str) -> None:
    ran = run(FLAKY % (9, "KeyError", f", non_retryable_errors: [{name}]"), folder=tmp_path)

    assert "try 1" in ran.message


def test_a_block_that_takes_too_long_is_stopped(tmp_path: Any) -> None:
    ran = run(
        """
        blocks:
          a:
            type: code
            code: "import time\\ndef main(data): time.sleep(60)"
            timeout_seconds: 0.5
        workflow: {entry: a}
        """,
        folder=tmp_path,
    )
    assert ran.message == "block 'a': no output within 0.5 s (timeout_seconds)"


CAPPED = """
blocks:
  a: {type: llm, prompt_template: x, depends: [], %s}
  b: {type: llm, prompt_template: y, depends: a}
workflow: {entry: a}
%s
"""


def costly(_: Soul, prompt: str) -> SoulAnswer:
    return SoulAnswer(prompt, "test", "m", Metrics(5.0, None, 0.6, 30, 20))


@pytest.mark.parametrize(
    ("block", "whole", "message"),
    [
        ("limits: {cost_cap_usd: 0.5}", "", "block 'a': cost_cap_usd: cost 0.6 USD"),
        ("limits: {token_cap: 49}", "", "block 'a': token_cap: used 50 tokens"),
        ("", "limits: {cost_cap_usd: 1}", "block 'b': cost_cap_usd: cost 1.2 USD"),
        ("", "limits: {token_cap: 60, on_exceed: fail}", "block 'b': token_cap: used 100"),
    ],
)
def test_a_limit_that_is_passed_fails_the_block(block: str, whole: str, message: str) -> None:
    ran = run(CAPPED % (block, whole), model=costly)

    assert ran.message.startswith(message)


def test_a_limit_that_only_warns_is_an_event() -> None:
    ran = run(CAPPED % ("limits: {token_cap: 10, on_exceed: warn}", ""), model=costly)

    assert ran.left.value == "y"
    assert [event.block for event in ran.of("limit_exceeded")] == ["a"]


def test_the_duration_of_a_whole_workflow_is_bounded(tmp_path: Any) -> None:
    ran = run(
        """
        blocks: {a: {type: code, code: "import time\\ndef main(data): time.sleep(60)"}}
        workflow: {entry: a}
        limits: {max_duration_seconds: 0.3}
        """,
        folder=tmp_path,
    )
    assert ran.message == "max_duration_seconds: no output within 0.3 s"
    assert ran.snapshot.state == "failed"


def test_a_given_block_does_not_run_and_routes_as_if_it_had() -> None:
    ran = run(
        """
        blocks:
          check: {type: gate, eval_key: workflow.t, pass: x, fail: y}
          x: {type: llm, prompt_template: "{facts.words} words"}
          y: {type: llm, prompt_template: no}
          facts: {type: code, code: "def main(data): return 1", depends: []}
        workflow: {entry: facts, transitions: [{from: facts, to: check}]}
        """,
        given=Fixtures({"check": "pass\nfine", "facts": '{"words": 7}'}),
    )
    assert ran.outputs == {"facts": {"words": 7}, "check": "pass\nfine", "x": "7 words"}
    assert [soul.id for soul, _ in ran.asked] == ["default"]
    assert [event.data.get("given") for event in ran.of("block_completed")] == [True, True, None]


def test_assertions_of_a_block_are_events_of_blocks_that_really_run() -> None:
    check = Assertion("contains", "contains", "contains-x", {"value": "x"})
    text = """
        blocks:
          a: {type: llm, prompt_template: x}
          b: {type: llm, prompt_template: x, depends: a}
        workflow: {entry: a}
        """
    ran = run(text, checks={"a": (check,), "b": (check,)}, given=Fixtures({"a": "given"}))

    (event,) = ran.of("assertion_result")
    assert (event.block, event.data["name"], event.data["outcome"]) == ("b", "contains-x", "passed")


def test_calls_are_events_and_counted_per_block() -> None:
    ran = run(CAPPED % ("", ""), model=costly)

    calls = ran.of("model_call")
    assert [(event.block, event.data["cost_usd"]) for event in calls] == [("a", 0.6), ("b", 0.6)]
    assert [call.block for call in ran.left.calls] == ["a", "b"]
    assert ran.left.invocations == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("declared", "said", "message"),
    [
        ("{n: integer}", '{"n": 1}', None),
        ("{n: int, s: {type: string, maxLength: 2}}", '{"n": 1, "s": "ab"}', None),
        ("{n: integer}", '{"n": "1"}', "output 'n' is declared as integer, but is str"),
        ("{n: integer}", '{"m": 1}', "declares the output 'n', but gave: m"),
        ("{n: integer}", "plain", "declares the outputs n, but gave no mapping"),
        (
            "{s: {type: string, maxLength: 2}}",
            '{"s": "abc"}',
            "output 's': 'abc' is too long",
        ),
        (
            "{type: object, properties: {n: {type: integer}}, required: [n]}",
            "{}",
            "the output: 'n' is a required property",
        ),
    ],
)
def test_declared_outputs_are_checked(declared: str, said: str, message: str | None) -> None:
    text = f"""
        blocks: {{a: {{type: llm, prompt_template: "{{said}}", outputs: {declared}}}}}
        workflow: {{entry: a}}
        """
    ran = run(text, {"said": said})

    if message is None:
        assert ran.left.value == said
    else:
        assert ran.message == f"block 'a': {message}"


@pytest.mark.parametrize(
    ("wanted", "value"), [("a", "one"), ("b", "two"), ("c.k", 3)], ids=["first", "last", "path"]
)
def test_the_primary_output_may_be_named(wanted: str, value: Any) -> None:
    ran = run(
        f"""
        blocks:
          a: {{type: llm, prompt_template: one}}
          c: {{type: llm, prompt_template: '{{{{"k": 3}}}}', depends: a}}
          b: {{type: llm, prompt_template: two, depends: c}}
        workflow: {{entry: a}}
        primary_output: {wanted}
        """
    )
    assert ran.left.value == value


def test_an_input_that_is_nowhere_is_named() -> None:
    ran = run("blocks: {a: {type: linear, inputs: {t: {from: workflow.text}}}}", {"other": 1})

    assert ran.message == (
        "block 'a': input 't': there is no 'workflow.text'; known: workflow.other"
    )

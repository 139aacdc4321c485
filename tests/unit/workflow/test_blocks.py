"""What each type of block does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.evidence import Metrics
from evalcore.workflow.context import SoulAnswer
from evalcore.workflow.definition import Soul
from evalcore.workflow.engine import Fixtures
from evalcore.workflow.events import by_block, sum_calls
from tests.unit.workflow.running import Ran, run


def run_code(code: str, folder: Path, inputs: dict[str, Any] | None = None) -> Ran:
    raw = {"blocks": {"a": {"type": "code", "code": code}}, "workflow": {"entry": "a"}}
    return run(raw, inputs, folder=folder)


@pytest.mark.parametrize(
    "returned",
    ["text", {"ö": [1, 2.5, None, True]}, [1, "a"], 5, None, "", {"exit_handle": "x"}],
    ids=str,
)
def test_code_returns_any_json_value(tmp_path: Path, returned: Any) -> None:
    ran = run_code("def main(data):\n    return data['given']", tmp_path, {"given": returned})

    assert ran.left.value == returned


def test_what_code_prints_is_not_its_output(tmp_path: Path) -> None:
    code = """
import os, sys
print("at import")
def main(data):
    print("in main")
    os.system("echo from a child")
    sys.stdout.write('{"returned": "forged"}')
    return "real"
"""
    assert run_code(code, tmp_path).left.value == "real"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def main(data):\n    return 1 / 0", "ZeroDivisionError: division by zero (line 2"),
        (
            "import os\ndef main(data):\n    os._exit(3)",
            "its worker process ended with exit code 3",
        ),
        ("import nowhere_at_all\ndef main(data): pass", "ModuleNotFoundError: No module named"),
        ("def main(data):\n    return data['x']", "KeyError: 'x' (line 2 of the code)"),
    ],
)
def test_a_mistake_in_code_is_one_line(tmp_path: Path, code: str, message: str) -> None:
    ran = run_code(code, tmp_path)

    assert ran.message.startswith(f"block 'a': {message}")
    assert "Traceback" not in ran.message
    assert "\n" not in ran.message


def test_code_inherits_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hidden")
    ran = run_code("import os\ndef main(data): return dict(os.environ)", tmp_path)

    assert "OPENAI_API_KEY" not in ran.left.value
    assert "PATH" in ran.left.value
    assert os.environ["OPENAI_API_KEY"] == "sk-hidden"


def test_the_memory_of_code_is_bounded(tmp_path: Path) -> None:
    ran = run_code("def main(data): return len(bytearray(3 << 30))", tmp_path)

    assert ran.message.startswith("block 'a': MemoryError")


def test_code_sees_everything_unless_it_declares_inputs(tmp_path: Path) -> None:
    text = """
        blocks:
          a: {type: llm, prompt_template: said}
          b: {type: code, depends: a, code: "def main(data): return data"}
          c: {type: code, depends: b, inputs: {x: {from: a}}, code: "def main(data): return data"}
        workflow: {entry: a}
        """
    outputs = run(text, {"n": 1}, folder=tmp_path).outputs

    assert outputs["b"] == {"a": "said", "n": 1}
    assert outputs["c"] == {"x": "said"}


CALLED = {"blocks": {"a": {"type": "code", "callable": "mine:work"}}, "workflow": {"entry": "a"}}


def test_code_may_be_a_function_of_the_suites_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from other import add\ndef work(data):\n    return add(data['n'])\n"
    )
    (tmp_path / "other.py").write_text("def add(n):\n    print('noise')\n    return n + 1\n")

    assert run(CALLED, {"n": 1}, folder=tmp_path).left.value == 2


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("os:getcwd", "os:getcwd: module 'os' does not lie below"),
        ("mine:nothing", "mine:nothing: 'mine' has no 'nothing'"),
        ("mine:os.system", "mine:os.system: 'os' is a module"),
    ],
)
def test_a_function_that_trust_does_not_grant(tmp_path: Path, reference: str, message: str) -> None:
    (tmp_path / "mine.py").write_text("import os\ndef work(data): return 1\n")
    raw = {"blocks": {"a": {"type": "code", "callable": reference}}}

    assert run(raw, folder=tmp_path).message.startswith(f"block 'a': {message}")


def test_a_soul_gives_its_system_prompt_and_model() -> None:
    ran = run(
        """
        souls: {w: {id: w, system_prompt: Be brief., model_name: m1, temperature: 0.5}}
        blocks: {a: {type: llm, soul_ref: w, prompt_template: hello}}
        """
    )
    ((soul, messages),) = ran.asked
    assert (soul.model_name, soul.parameters) == ("m1", {"temperature": 0.5})
    assert messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
    )


def test_a_gate_judges_what_its_key_names() -> None:
    ran = run(
        """
        blocks:
          draft: {type: llm, prompt_template: '{{"body": "Water bulges."}}'}
          check: {type: gate, eval_key: draft.body, depends: draft}
        workflow: {entry: draft}
        """,
        model=lambda _, prompt: "PASS" if prompt.endswith("\n\nWater bulges.") else prompt,
    )
    assert ran.left.value == "PASS"


def test_synthesize_joins_outputs_below_their_names() -> None:
    ran = run(
        """
        blocks:
          a: {type: llm, prompt_template: one}
          b: {type: llm, prompt_template: two, depends: a}
          c: {type: synthesize, input_block_ids: [a, b], depends: b}
        workflow: {entry: a}
        """
    )
    assert ran.left.value == "## a\none\n\n## b\ntwo"


DISPATCH = """
souls: {s: {id: s, model_name: m}, t: {id: t, model_name: n}}
blocks:
  d:
    type: dispatch
    exits:
      - {id: one, label: One, soul_ref: s, task: "First of {topic}"}
      - {id: two, label: Two, soul_ref: t, task: Second}
  after: {type: llm, prompt_template: "{d.one} and {d.two}", depends: d}
workflow: {entry: d}
"""


def timed(soul: Soul, prompt: str) -> SoulAnswer:
    return SoulAnswer(
        prompt, "test", soul.model_name or "", Metrics(40.0 if soul.id == "s" else 30.0)
    )


def test_dispatch_asks_for_every_exit() -> None:
    ran = run(DISPATCH, {"topic": "tides"}, model=timed)

    outputs = ran.outputs
    assert outputs["d.one"] == "First of tides"
    assert outputs["d.two"] == 'Second\n\n{"topic": "tides"}'
    assert outputs["d"] == {"one": outputs["d.one"], "two": outputs["d.two"]}
    assert outputs["after"].startswith("First of tides and Second")
    assert [soul.id for soul, _ in ran.asked] == ["s", "t", "default"]


def test_calls_at_the_same_time_count_once() -> None:
    calls = run(DISPATCH, {"topic": "tides"}, model=timed).left.calls

    assert sum_calls(calls).latency_ms == 70.0
    assert {block: metrics.latency_ms for block, metrics in by_block(calls).items()} == {
        "d": 40.0,
        "d.one": 40.0,
        "d.two": 30.0,
        "after": 30.0,
    }


def test_an_exit_may_be_given() -> None:
    ran = run(DISPATCH, {"topic": "x"}, given=Fixtures({"d.two": "given"}))

    assert ran.outputs["d"] == {"one": "First of x", "two": "given"}
    assert len(ran.asked) == 2


LOOP = """
blocks:
  count:
    type: code
    code: |
      def main(data):
          before = data.get("previous_round_context") or {}
          n = (before.get("count") or {}).get("n", 0) + 1
          return {"n": n, "round": data["again_round"], "done": n >= 3}
  again: {type: loop, inner_block_refs: [count], %s}
  end: {type: llm, prompt_template: "{again.n}/{count.n}", depends: again}
workflow: {entry: again}
"""


@pytest.mark.parametrize(
    ("options", "end"),
    [
        pytest.param("carry_context: true, max_rounds: 4", "4/4", id="rounds"),
        pytest.param("max_rounds: 2", "1/1", id="nothing carried"),
        pytest.param(
            "carry_context: true, break_condition: {eval_key: done, operator: equals, value: true}",
            "3/3",
            id="condition",
        ),
        pytest.param(
            "carry_context: {mode: last, source_blocks: [count]}, break_condition: {combinator: or,"
            " conditions: [{eval_key: count.n, operator: gte, value: 2}]}",
            "2/2",
            id="group on another block",
        ),
        pytest.param("carry_context: {enabled: false}, max_rounds: 2", "1/1", id="switched off"),
        pytest.param("carry_context: true", "5/5", id="five rounds by default"),
    ],
)
def test_a_loop_repeats_until(tmp_path: Path, options: str, end: str) -> None:
    ran = run(LOOP % options, folder=tmp_path)

    assert ran.left.value == end
    rounds = int(end.partition("/")[0]) if "true" in options or "last" in options else 2
    assert len(ran.of("loop_round")) == rounds
    assert ran.left.invocations["count"] == rounds


def test_a_loop_may_carry_all_rounds() -> None:
    said = iter(["draft 1", "FAIL", "draft 2", "PASS"])
    ran = run(
        """
        blocks:
          draft: {type: llm, prompt_template: "after {previous_round_context}"}
          review: {type: gate, eval_key: draft}
          refine: {type: loop, inner_block_refs: [draft, review], max_rounds: 5,
                   break_condition: {operator: equals, value: PASS}, carry_context: {mode: all}}
        workflow: {entry: refine}
        """,
        model=lambda _, prompt: next(said),
    )
    assert ran.outputs == {"draft": "draft 2", "review": "PASS", "refine": "PASS"}
    assert ran.asked[0][1][-1]["content"] == "after []"
    assert json.loads(ran.asked[2][1][-1]["content"].removeprefix("after ")) == [
        {"draft": "draft 1", "review": "FAIL"}
    ]


def test_a_failing_inner_block_fails_its_loop() -> None:
    ran = run(
        """
        blocks:
          a: {type: llm, prompt_template: "{x}"}
          again: {type: loop, inner_block_refs: [a], error_route: rescue}
          rescue: {type: llm, prompt_template: "{again.error.message}"}
        workflow: {entry: again}
        """
    )
    assert ran.left.value.startswith("block 'a': prompt_template: unknown placeholder {x}")


CHILD = """
blocks:
  one: {type: llm, prompt_template: "{workflow.topic}!"}
  two: {type: llm, prompt_template: "{one} {one}", depends: one}
workflow: {name: child, entry: one}
"""


@pytest.mark.parametrize(
    ("outputs", "value"),
    [
        ("", "tides! tides!"),
        ("outputs: {first: one, all: {from: two}}, ", {"first": "tides!", "all": "tides! tides!"}),
    ],
)
def test_a_workflow_as_a_block(outputs: str, value: Any) -> None:
    text = f"""
        blocks:
          sub:
            {{type: workflow, workflow_ref: child, {outputs}inputs: {{topic: workflow.t}}}}
        workflow: {{entry: sub}}
        """
    ran = run(text, {"t": "tides", "hidden": 1}, workflows={"child": CHILD})

    assert ran.left.value == value
    assert ran.blocks() == ["sub", "sub/one", "sub/two"]
    assert {call.block for call in ran.left.calls} == {"sub"}
    assert ran.left.invocations == {"sub": 1}


def test_the_other_workflow_knows_only_its_inputs() -> None:
    text = "blocks: {sub: {type: workflow, workflow_ref: child}}"
    ran = run(text, {"topic": "tides"}, workflows={"child": CHILD})

    assert ran.message.startswith(
        "block 'sub': block 'sub/one': prompt_template: unknown placeholder {workflow.topic}"
    )


def test_a_workflow_that_names_itself_ends() -> None:
    child = "blocks: {sub: {type: workflow, workflow_ref: child}}"
    ran = run(child, workflows={"child": child})

    assert ran.message.endswith("workflows stand in one another deeper than 10 times")


def test_a_failure_may_be_caught() -> None:
    text = """
        blocks:
          sub: {type: workflow, workflow_ref: child, on_error: catch, error_route: rescue}
          rescue: {type: llm, prompt_template: rescued}
          other: {type: llm, prompt_template: other, depends: sub}
        workflow: {entry: sub}
        """
    ran = run(text, workflows={"child": CHILD})

    assert ran.left.value == "rescued"
    assert ran.outputs["sub"]["exit_handle"] == "error"

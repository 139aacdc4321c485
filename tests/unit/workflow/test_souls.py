"""Souls with tools and memories, and the defaults of a workflow's inputs and model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from evalcore.workflow.context import SoulAnswer
from evalcore.workflow.definition import Soul, SoulTool
from evalcore.workflow.tools import built_in_tools
from tests.unit.workflow.running import Ran, read, run

REPORTER = """\
souls: {reporter: {id: r, model_name: m, system_prompt: Report., %s}}
blocks:
  send: {type: linear, soul_ref: reporter%s}
  urgent: {type: code, code: "def main(data): return 'urgent'"}
workflow:
  entry: send
  conditional_transitions: [{from: send, now: urgent, default: null}]
"""
DOUBLE = {
    "name": "double",
    "description": "Doubles n.",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    "executor": "python",
    "code": "def main(args):\n    return {'doubled': args['n'] * 2}",
}


def calls(*turns: Sequence[tuple[str, Any]] | str) -> Callable[[Soul, str], SoulAnswer]:
    """Return a model that takes these turns: calls of tools, or a text."""
    left = iter(turns)

    def answer(_: Soul, __: str) -> SoulAnswer:
        turn = next(left)
        if isinstance(turn, str):
            return SoulAnswer(turn, "test", "m")
        asked_for = [
            {"id": f"c{number}", "name": name, "arguments": arguments}
            for number, (name, arguments) in enumerate(turn)
        ]
        return SoulAnswer("", "test", "m", tool_calls=tuple(asked_for))

    return answer


def report(
    model: Callable[[Soul, str], SoulAnswer],
    folder: Path,
    soul: str = "tools: [double]",
    block: str = "",
) -> Ran:
    raw = read(REPORTER % (soul, block))
    tools: dict[str, Any] = {
        name: tool.model_dump(exclude_none=True) for name, tool in built_in_tools().items()
    }
    return run({**raw, "tools": {"double": DOUBLE, **tools}}, {"n": 4}, model=model, folder=folder)


def replies(ran: Ran) -> list[str]:
    """Return what tools answered, as the last request of the model has it."""
    return [m["content"] for m in ran.asked[-1][1] if m["role"] == "tool"]


def test_a_soul_calls_its_tools_and_answers_with_what_they_returned(tmp_path: Path) -> None:
    ran = report(calls([("double", {"n": 4})], "It is 8."), tmp_path)

    assert ran.left.value == "It is 8."
    assert replies(ran) == ['{"doubled": 8}']
    assert [message["role"] for message in ran.asked[-1][1]] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]
    (event,) = ran.of("tool_call")
    assert (event.data["name"], event.data["arguments"]) == ("double", '{"n": 4}')
    assert [tool["name"] for tool in ran.offers[0].tools] == ["double"]
    assert len(ran.of("model_call")) == 2


@pytest.mark.parametrize(
    ("call", "told"),
    [
        pytest.param(("nothing", {}), "unknown tool 'nothing'", id="unknown"),
        pytest.param(("double", {"m": 1}), "KeyError: 'n' (line 2 of the code)", id="raises"),
        pytest.param(("double", "n=4"), "the arguments are no JSON object: n=4", id="no object"),
    ],
)
def test_a_tool_that_fails_tells_the_model(tmp_path: Path, call: Any, told: str) -> None:
    ran = report(calls([call], "Sorry."), tmp_path)

    assert replies(ran) == [f"Error: {told}"]
    assert ran.left.value == "Sorry."
    assert ran.of("tool_call")[0].data["error"] == told


def test_the_last_turn_has_to_be_text(tmp_path: Path) -> None:
    turns: list[Any] = [[("double", {"n": 1})], [("double", {"n": 2})], "Enough."]
    ran = report(calls(*turns), tmp_path, "tools: [double], max_tool_iterations: 3")

    assert [offer.choice for offer in ran.offers] == [None, None, "none"]
    assert ran.left.value == "Enough."


def test_without_turns_no_tool_is_offered(tmp_path: Path) -> None:
    ran = report(calls("Text."), tmp_path, "tools: [double], max_tool_iterations: 0")

    assert ran.offers[0].tools == ()


def test_required_calls_are_demanded_until_they_are_made(tmp_path: Path) -> None:
    soul = "tools: [double, delegate], required_tool_calls: [double]"
    ran = report(
        calls([("delegate", {"port": "x"})], [("double", {"n": 1})], "Done."), tmp_path, soul
    )

    assert [offer.choice for offer in ran.offers] == ["required", "required", None]


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        pytest.param(["Done."], "soul 'reporter' answered without calling double", id="text"),
        pytest.param(
            [[("delegate", {})]] * 2,
            "no call of double within 2 turns (max_tool_iterations)",
            id="other calls",
        ),
    ],
)
def test_a_required_call_that_is_not_made_fails_the_block(
    tmp_path: Path, turns: list[Any], message: str
) -> None:
    soul = "tools: [double, delegate], required_tool_calls: [double], max_tool_iterations: 2"
    assert message in report(calls(*turns), tmp_path, soul).message


@pytest.mark.parametrize(("port", "end"), [("now", "urgent"), ("later", "Done.")])
def test_a_soul_delegates_to_an_exit_of_its_block(tmp_path: Path, port: str, end: str) -> None:
    block = ", exits: [{id: now, label: Now}, {id: later, label: Later}]"
    ran = report(
        calls([("delegate", {"port": port})], "Done."), tmp_path, "tools: [delegate]", block
    )

    schema = ran.offers[0].tools[0]["parameters"]
    assert schema["properties"]["port"]["enum"] == ["now", "later"]
    assert ran.left.value == end


def test_what_a_tool_writes_can_be_read_and_touches_no_file(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("From the repository.")
    (tmp_path / ".env").write_text("SECRET=1")
    asked = [
        {"action": "write", "path": "out/report.md", "content": "Written."},
        {"action": "read", "path": "out/report.md"},
        {"action": "read", "path": "notes.md"},
        {"action": "read", "path": ".env"},
        {"action": "read", "path": "../other.md"},
        {"action": "read", "path": "/etc/hostname"},
    ]
    ran = report(
        calls([("file_io", arguments) for arguments in asked], "Done."),
        tmp_path,
        "tools: [file_io]",
    )

    assert replies(ran) == [
        "Written 8 characters to out/report.md",
        "Written.",
        "From the repository.",
        "Error: '.env' is no path below the suite's repository",
        "Error: '../other.md' is no path below the suite's repository",
        "Error: '/etc/hostname' is no path below the suite's repository",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:9/x", "http://[::1]/x", "http://169.254.169.254/latest", "file:///etc"],
)
def test_a_model_reaches_public_addresses_only(tmp_path: Path, url: str) -> None:
    asked = [("http_request", {"method": "GET", "url": url})]
    ran = report(calls(asked, "No."), tmp_path, "tools: [http]")

    assert "is not" in replies(ran)[0]


def test_a_stateful_block_remembers_its_rounds() -> None:
    text = """
    souls: {s: {model_name: m, system_prompt: Be brief.}}
    blocks:
      say: {type: llm, soul_ref: s, prompt_template: "Round {again_round}", stateful: %s}
      again: {type: loop, inner_block_refs: [say], max_rounds: 2}
    workflow: {entry: again}
    """
    told = [
        [message["content"] for message in run(text % flag).asked[-1][1]]
        for flag in ("true", "false")
    ]

    assert told == [["Be brief.", "Round 1", "Round 1", "Round 2"], ["Be brief.", "Round 2"]]


def test_inputs_have_declared_defaults() -> None:
    text = """
    inputs: {topic: {type: string, default: tides}, depth: {type: number, required: false}}
    interface: {inputs: [{name: tone, target: shared_memory.tone, default: dry}]}
    blocks: {a: {type: llm, prompt_template: "{topic}, {tone}, {shared_memory.tone}"}}
    workflow: {entry: a}
    """
    values = [run(text, given).left.value for given in ({}, {"topic": "moons", "tone": "warm"})]

    assert values == ["tides, dry, dry", "moons, warm, warm"]


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


def test_the_exits_of_an_offer_are_those_of_the_block_that_asks() -> None:
    delegate: SoulTool = built_in_tools()["delegate"]

    assert "enum" not in delegate.offer()["parameters"]["properties"]["port"]
    assert delegate.offer(["a"])["parameters"]["properties"]["port"]["enum"] == ["a"]

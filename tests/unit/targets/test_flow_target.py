"""The target `flow` (docs/reference/suites.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import TargetError
from evalcore.jsonvalues import HALF, Resolved
from evalcore.model.evidence import Evidence, Metrics, find_value
from evalcore.model.exchange import ErrorKind, ProviderError, Reply, Request
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from evalcore.targets.registry import build
from evalcore.targets.work import Work
from evalcore.trust.imports import ImportPolicy

VARIANT = Variant("v1", config={"model": "m1", "config": {"tone": "kind"}}, tags=("t",))


def work_of(function: Any, complete: Any = None, **more: Any) -> Work:
    options = {} if complete is None else {"complete": complete}
    return Work(
        Case("c1", {"task": "x"}),
        VARIANT,
        iteration=2,
        item=7,
        prompt="",
        messages=(),
        folder=Path(),
        imports=ImportPolicy(),
        mode="replay",
        objects={"local:fn": function},
        **options,
        **more,
    )


def answer(function: Any, complete: Any = None, **options: Any) -> Evidence:
    target = Target("flow", "flow", {"callable": "local:fn", **options})
    runnable = build(target, VARIANT, environment={"OPENAI_API_KEY": "k"})
    work = work_of(function, complete)
    assert runnable.waits(work.case)
    return asyncio.run(runnable.answer(work))


def changes_all(context: Any, case_input: Any, config: Any) -> str:
    before = json.dumps([case_input, config, context.metadata, context.messages])
    case_input["task"]["steps"].append("y")
    config["tone"] = "rude"
    context.metadata["seen"] = True
    context.messages[0]["content"] = "changed"
    return before


def test_what_a_function_changes_is_its_own() -> None:
    target = Target("flow", "flow", {"callable": "local:fn"})
    runnable = build(target, VARIANT, environment={})
    case = Case("c1", {"task": {"steps": ["x"]}}, metadata={"m": 1})
    messages = ({"role": "user", "content": "hi"},)
    work = replace(work_of(changes_all), case=case, messages=messages)
    outputs = [asyncio.run(runnable.answer(work)).output for _ in range(2)]
    assert outputs[0] == outputs[1]
    assert (case.input, case.metadata) == ({"task": {"steps": ["x"]}}, {"m": 1})


async def with_all(case_input: Any, variant: Any, mode: str) -> str:
    return f"{case_input['task']} {variant.id} {variant.model} {variant.config['tone']} {mode}"


def with_more(**more: Any) -> str:
    return " ".join(sorted(more))


def with_context(context: Any) -> str:
    return f"{context.case_id} {context.iteration} {context.variant.tags[0]} {context.input}"


class Instance:
    def __call__(self, case_input: Any) -> str:
        return str(case_input["task"])


@pytest.mark.parametrize(
    ("function", "output"),
    [
        (with_all, "x v1 m1 kind replay"),
        (lambda case_input, variant: variant.id, "v1"),
        (lambda variant, case_input: variant.id + case_input["task"], "v1x"),
        (lambda payload: payload["task"], "x"),
        (lambda a, b: a["task"] + b.id, "xv1"),
        (lambda a, b, c: a["task"] + b.id + c, "xv1replay"),
        (lambda payload, strict=False: f"{strict}", "False"),
        (lambda config: config["tone"], "kind"),
        (lambda: "nothing", "nothing"),
        (with_more, "case_input context mode variant"),
        (with_context, "c1 2 t {'task': 'x'}"),
        (Instance(), "x"),
    ],
)
def test_a_function_gets_what_it_takes(function: Callable[..., Any], output: str) -> None:
    assert answer(function).output == output


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        ("text", "text"),
        ({"output": {"a": 1}}, '{"a": 1}'),
        ({"output": "o"}, "o"),
        ([1, "ü"], '[1, "ü"]'),
        (3, "3"),
        (True, "true"),
        ({}, "{}"),
        ({"title": "a", "text": "x"}, '{"title": "a", "text": "x"}'),
        (lambda: {"a": 1}, '{"a": 1}'),
        (Metrics(latency_ms=1.0), json.dumps({**asdict(Metrics()), "latency_ms": 1.0})),
        ({"output": Metrics()}, json.dumps(asdict(Metrics()))),
        (Evidence("given"), "given"),
        ({"outputs": {"plan": "p", "main": {"code": "c"}}}, '{"code": "c"}'),
        ({"outputs": {"plan": "p", "main": "m"}, "primary_output": "plan"}, "p"),
        ({"output": "o", "state": {"s": 1}}, "o"),
        ({"flow": {"outputs": {"a": "1", "b": "2"}}, "primary_output": "a"}, "1"),
        ({"flow": {"outputs": {"a": "1", "b": "2"}}, "primaryOutputNodeId": "a"}, "1"),
        ({"provider": "mock", "response": "mocked"}, "mocked"),
        ({"flow": {"provider": "mock", "response": "mocked"}}, "mocked"),
        (lambda case_input: case_input["task"] + "!", "x!"),
    ],
)
def test_what_a_factory_returns_is_run_or_is_the_answer(returned: Any, output: str) -> None:
    assert answer(lambda case_input: returned).output == output


@pytest.mark.parametrize(
    "returned",
    [
        {"provider": "somebody", "text": "t"},
        {"name": "f", "nodes": [{"id": "main", "type": "claude.agent"}], "edges": []},
        {"blocks": []},
        {"output": "x", "more": 1},
        {"outputs": "x"},
        lambda: {"outputs": "x"},
    ],
)
def test_a_mapping_with_the_keys_of_definitions_is_an_error_and_no_answer(returned: Any) -> None:
    with pytest.raises(TargetError, match=r"returned a mapping with the keys .*; expected one of"):
        answer(lambda case_input: returned)


@pytest.mark.parametrize("flow", ["text", None, 3, ["a"]])
def test_what_stands_under_flow_is_executed(flow: Any) -> None:
    with pytest.raises(TargetError, match="'flow' is something to execute"):
        answer(lambda case_input: {"flow": flow})


@pytest.mark.parametrize("returned", [{"output": {"a": 1}}, {"a": 1}])
def test_a_mapping_as_output_is_the_state_too(returned: Any) -> None:
    evidence = answer(lambda case_input: returned)
    assert evidence.details["state"] == {"a": 1}
    assert find_value(evidence, "outputs.a") == Resolved(1)


def test_a_definition_is_run_by_the_workflow_engine() -> None:
    code = "def main(data):\n    return {'said': data['task'] + '?'}"
    block = {"type": "code", "code": code, "inputs": {"task": {"from": "workflow.task"}}}
    evidence = answer(lambda case_input: {"blocks": {"say": block}, "workflow": {"entry": "say"}})
    assert evidence.outputs["say"] == '{"said": "x?"}'
    assert evidence.details["invocations"] == {"say": 1}


def test_the_state_holds_the_raw_values() -> None:
    evidence = answer(lambda case_input: {"outputs": {"n": 1, "t": "1"}})
    assert evidence.outputs == {"n": "1", "t": "1"}
    assert evidence.details["state"] == {"n": 1, "t": "1"}


TYPED = {
    "a state that says other things": ({"outputs": {"n": 5}, "state": {"x": 1}}, "n", 5),
    "a text beside a number in the state": ({"outputs": {"n": "5"}, "state": {"n": 5}}, "n", "5"),
    "a bool": ({"outputs": {"n": True}, "state": {}}, "n", True),
    "nothing": ({"outputs": {"n": None, "m": "x"}, "state": {}}, "n", None),
    "a list": ({"outputs": {"n": [1, "2"]}, "state": {"n": 1}}, "n", [1, "2"]),
    "the primary output": ({"outputs": {"n": 5}, "state": {}}, "primary_output", 5),
    "no mapping at all": (5, "primary_output", 5),
}


@pytest.mark.parametrize(("returned", "name", "value"), TYPED.values(), ids=TYPED)
def test_outputs_keep_their_types(returned: Any, name: str, value: Any) -> None:
    found = find_value(answer(lambda case_input: returned), f"outputs.{name}")
    assert isinstance(found, Resolved)
    assert (type(found.value), found.value) == (type(value), value)


def test_the_primary_output_of_the_suite_wins() -> None:
    evidence = answer(lambda i: {"outputs": {"a": "1", "b": "2"}}, primary_output="a")
    assert evidence.output == "1"


def test_the_latency_is_measured_where_no_model_was_called() -> None:
    assert answer(lambda i: "x").metrics.latency_ms is not None


async def replies(request: Request) -> Reply:
    asked = request.messages[-1]["content"]
    return Reply(f"{request.endpoint.provider} {request.model} {asked} {request.parameters}")


async def chats(context: Any) -> str:
    reply = await context.chat(messages="hello", temperature=0)
    return str(reply.text)


def chats_sync(context: Any) -> str:
    asked = [{"role": "user", "content": "hello"}]
    return str(context.chat_sync(messages=asked, provider="openai", model="m2").text)


@pytest.mark.parametrize(
    ("function", "output"),
    [(chats, "openai m1 hello {'temperature': 0}"), (chats_sync, "openai m2 hello {}")],
)
def test_a_flow_asks_models_through_its_context(function: Any, output: str) -> None:
    evidence = answer(function, replies)
    assert evidence.output == output
    assert evidence.metrics.latency_ms is None  # the engine's ledger has it


async def fails(request: Request) -> Reply:
    raise ProviderError(ErrorKind.RATE, "too many", 429)


def test_a_call_that_failed_is_the_items_error_if_nobody_takes_it() -> None:
    with pytest.raises(ProviderError, match="too many"):
        answer(chats, fails)


def boom(case_input: Any) -> str:
    raise KeyError("gone")


def exits(case_input: Any) -> str:
    raise SystemExit(1)


@dataclass
class Measured:
    ms: float


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (boom, "KeyError: 'gone'"),
        (exits, "SystemExit: 1"),
        (lambda i: {1, 2}, "not set"),
        (lambda i: {"output": {1: "a", "1": "b"}}, "two keys of one text"),
        (lambda i: [{1: "a", "1": "b"}], "two keys of one text"),
        (lambda i: {"output": "x", "state": Measured(float("nan"))}, "NaN or infinite"),
        (lambda i: {"flow": {"outputs": {"a": "1"}}, "primary_output": "b"}, "'outputs.b'"),
        (lambda i: {"output": "x", "metrics": {"speed": 1}}, "'metrics' is a mapping of"),
        (lambda i: {"provider": "mock"}, "response"),
        (lambda i: boom, "KeyError"),
    ],
    ids=[
        "raises",
        "exits",
        "no JSON",
        "equal keys",
        "in a list",
        "NaN",
        "no such block",
        "metrics",
        "options",
        "inner raises",
    ],
)
def test_what_is_no_answer_is_an_error_of_the_item(function: Any, reason: str) -> None:
    with pytest.raises(TargetError) as raised:
        answer(function)
    assert reason in str(raised.value)


HALF_VALUES: dict[str, Any] = {
    "text": "half \ud83d",
    "mapping": {"a": "half \ud83d"},
    "key": {"half \ud83d": 1},
}
HALF_VALUES["output"] = {"output": {"a": ["half \ud83d"]}}
HALF_VALUES["outputs"] = {"outputs": {"main": "half \ud83d"}, "metrics": {"cost_usd": 0.5}}


@pytest.mark.parametrize("returned", HALF_VALUES.values(), ids=HALF_VALUES)
def test_half_a_character_in_an_answer_is_replaced_and_noted(returned: Any) -> None:
    evidence = answer(lambda case_input: returned)
    assert "half \ufffd" in str(evidence.output)
    assert evidence.details["warnings"] == [HALF]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"errors": 5}, "'errors' is a list of texts"),
        ({"invocations": "main"}, "'invocations' is a mapping of block ids to numbers"),
        ({"metrics": 5}, "'metrics' is a mapping of"),
    ],
)
def test_an_answer_of_the_wrong_shape_says_what_it_should_be(more: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        answer(lambda case_input: {"outputs": {"main": "x"}, **more})


def test_a_target_that_a_factory_returns_is_built_in_the_same_surroundings() -> None:
    environment = {"EVAL_GREETING": "hello"}
    target = Target("flow", "flow", {"callable": "local:fn"})
    command = ["sh", "-c", "echo $GREETING"]
    returned = {
        "provider": "command",
        "command": command,
        "env": {"GREETING": "${{ EVAL_GREETING }}"},
    }
    work = work_of(lambda case_input: returned)
    evidence = asyncio.run(build(target, environment=environment).answer(work))
    assert evidence.output == "hello"


def test_a_function_of_another_program_is_an_error_that_says_so() -> None:
    target = Target("flow", "flow", {"callable": "local:other"})
    with pytest.raises(TargetError, match="belongs to the Python program"):
        asyncio.run(build(target).answer(work_of(None)))

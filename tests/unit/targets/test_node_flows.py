"""Flows of nodes that a factory returns (docs/reference/suites.md)."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from evalcore.errors import TargetError
from evalcore.jsonvalues import Resolved
from evalcore.model.evidence import Evidence, find_value
from evalcore.model.exchange import Reply, Request, SkippedError, Usage
from evalcore.model.target import Target
from evalcore.targets.registry import build
from evalcore.workflow.run_store import MemoryRunStore
from tests.unit.targets.test_flow_target import VARIANT, work_of

Json = dict[str, Any]


class Node:
    """A node of a type that calls a function."""

    def __init__(self, type_: str, run: Any) -> None:
        self.type = type_
        self._run = run

    async def run(self, input: Any, *, context: Any) -> Any:  # noqa: A002
        return self._run(input, context)


def say(input: Any, *, context: Any) -> Any:  # noqa: A002
    return input


def nodes(*listed: Json, edges: Any = (), run: Any = None, **more: Any) -> Json:
    def register(registry: Any, mode: str) -> None:
        registry.register("say", run or say)

    flow = {"name": "f", "nodes": list(listed), "edges": list(edges)}
    return {"flow": flow, "register": register, **more}


def node(name: str, *given: Any, **more: Any) -> Json:
    written = {"input": given[0]} if given else {}
    return {"id": name, "type": "say", **written, **more}


def edge(source: str, target: str, when: Any = None) -> Json:
    return {"from": source, "to": target} | ({} if when is None else {"when": when})


def execute(returned: Any, complete: Any = None, store: Any = None, **options: Any) -> Evidence:
    target = Target("flow", "flow", {"callable": "local:fn", **options})
    runnable = build(target, VARIANT, environment={"OPENAI_API_KEY": "k"})
    work = work_of(lambda case_input: returned, complete, run_store=store)
    return asyncio.run(runnable.answer(work))


def failure(returned: Any, **more: Any) -> str:
    with pytest.raises(TargetError) as caught:
        execute(returned, **more)
    return str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), {"a": [None, float("inf")]}])
def test_a_number_that_json_does_not_have_is_no_output(value: Any) -> None:
    def give(input: Any, *, context: Any) -> Any:  # noqa: A002
        return value

    message = failure(nodes(node("a"), run=give))
    assert "what JSON cannot hold: a number that is NaN or infinite" in message


def test_what_a_node_changes_is_its_own() -> None:
    def add(input: Any, *, context: Any) -> Any:  # noqa: A002
        input.append(context.node_id)
        return input

    flow = nodes(
        node("a", []), node("b", "{a}"), node("c"), edges=[edge("a", "b"), edge("b", "c")], run=add
    )
    outputs = execute(flow).outputs
    assert outputs == {"a": '["a"]', "b": '["a", "b"]', "c": '["a", "b", "c"]'}


def test_the_example_of_the_source_document_is_executed() -> None:
    made: list[tuple[str, str]] = []

    def register(registry: Any, mode: str) -> None:
        made.append(("register", mode))

        def run(input: Any, context: Any) -> str:  # noqa: A002
            return f"{input['task']} by {context.variant.model} in {context.node_id}"

        registry.register(SimpleNamespace(type="claude.agent", run=run))

    def factory(case_input: Any, variant: Any) -> Json:
        return {
            "flow": {
                "name": "my-workflow",
                "nodes": [{"id": "main", "type": "claude.agent", "input": case_input}],
                "edges": [],
            },
            "register": register,
            "primaryOutputNodeId": "main",
        }

    target = Target("flow", "flow", {"callable": "local:fn"})
    runnable = build(target, VARIANT, environment={})
    evidence = asyncio.run(runnable.answer(work_of(factory)))
    assert evidence.output == "x by m1 in main"
    assert evidence.outputs == {"main": "x by m1 in main"}
    assert evidence.details["invocations"] == {"main": 1}
    assert made == [("register", "replay")]


def test_inputs_refer_to_earlier_outputs_of_any_type() -> None:
    evidence = execute(
        nodes(
            node("plan", {"steps": ["a", "b"], "n": 2}),
            node("whole", "{plan}"),
            node("part", "{plan.steps[1]}"),
            node("text", "first {plan.steps.0}, all {plan}, literal {{plan}}, other {x} {}"),
            node("nested", [{"n": "{plan.n}", "t": "n={plan.n}"}]),
        )
    )
    steps = '{"steps": ["a", "b"], "n": 2}'
    assert evidence.details["state"] == {
        "plan": {"steps": ["a", "b"], "n": 2},
        "whole": {"steps": ["a", "b"], "n": 2},
        "part": "b",
        "text": f"first a, all {steps}, literal {{plan}}, other {{x}} {{}}",
        "nested": [{"n": 2, "t": "n=2"}],
    }
    assert find_value(evidence, "outputs.nested[0].n") == Resolved(2)
    assert evidence.output == '[{"n": 2, "t": "n=2"}]'


def test_without_edges_nodes_run_one_after_another_on_what_was_before() -> None:
    evidence = execute(
        nodes(node("one"), node("two"), node("three", None), run=lambda value: [value])
    )
    assert evidence.details["state"] == {
        "one": [{"task": "x"}],
        "two": [[{"task": "x"}]],
        "three": [None],
    }


def test_independent_nodes_run_side_by_side_and_a_join_waits_for_both() -> None:
    met = asyncio.Barrier(2)

    async def run(input: Any, *, context: Any) -> Any:  # noqa: A002
        if context.node_id in {"left", "right"}:
            await met.wait()  # alone, it would wait for ever
        return context.node_id if context.node_id != "join" else input

    edges = [edge("start", "left"), edge("start", "right")]
    edges += [edge("left", "join"), edge("right", "join")]
    evidence = execute(
        nodes(node("join"), node("left"), node("right"), node("start"), edges=edges, run=run)
    )
    assert evidence.details["state"]["join"] == {"left": "left", "right": "right"}
    assert evidence.output == '{"left": "left", "right": "right"}'


# Of the output {n: 5, t: "yes"}.
BRANCHES = {
    "long": ({"eval_key": "n", "operator": "gt", "value": 3}, True),
    "combined": (
        {
            "combinator": "or",
            "conditions": [
                {"eval_key": "n", "operator": "lt", "value": 1},
                {"eval_key": "t", "operator": "equals", "value": "yes"},
            ],
        },
        True,
    ),
    "short": ({"equals": {"var": "t", "value": "yes"}}, True),
    "without a value": ({"exists": {"var": "z"}}, False),
}


@pytest.mark.parametrize(("when", "holds"), BRANCHES.values(), ids=BRANCHES)
def test_a_node_is_skipped_if_no_way_to_it_holds(when: Any, holds: bool) -> None:
    evidence = execute(
        nodes(
            node("first", {"n": 5, "t": "yes"}),
            node("then", "ran"),
            node("after", "after {then}"),
            node("last", ["{then}", "{after}"]),
            edges=[
                edge("first", "then", when),
                edge("then", "after"),
                edge("after", "last"),
                edge("first", "last"),
            ],
        )
    )
    ran = {"first", "then", "after", "last"} if holds else {"first", "last"}
    assert set(evidence.outputs) == set(evidence.details["invocations"]) == ran
    expected = ["ran", "after ran"] if holds else [None, None]
    assert evidence.details["state"]["last"] == expected


def test_the_primary_output_is_the_node_that_is_named_else_the_last_that_ran() -> None:
    listed = (node("a", "1"), node("b", {"x": 2}), node("c", "3"))
    ways = [edge("a", "b"), edge("b", "c", {"exists": {"var": "y"}})]
    assert execute(nodes(*listed, edges=ways)).output == '{"x": 2}'
    for key in ("primary_output", "primary_output_node_id", "primaryOutputNodeId"):
        assert execute(nodes(*listed, **{key: "a"})).output == "1"
    assert execute(nodes(*listed, primary_output="b.x")).output == "2"
    assert "was skipped" in failure(nodes(*listed, edges=ways, primary_output="c"))


MISTAKES = {
    "no nodes": ({"flow": {"name": "f", "nodes": []}}, "^nodes: must not be empty"),
    "nodes of another kind": ({"flow": {"nodes": {"a": 1}}}, "^nodes: expected a list"),
    "a key of the flow": ({"flow": {"nodes": [node("a")], "steps": 1}}, "unknown key 'steps'"),
    "no id": (nodes({"type": "say"}), "^nodes.0..id: is required"),
    "an id twice": (nodes(node("a"), node("a")), "two nodes have the id 'a'"),
    "to nowhere": (
        nodes(node("main"), edges=[edge("main", "mian")]),
        "'to' names no node: 'mian'. Did you mean 'main'",
    ),
    "a circle": (
        nodes(node("s"), *map(node, "abc"), edges=map(edge, "sabc", "abca")),
        "the edges go round: a → b → c → a",
    ),
    "no such primary": (nodes(node("a"), primary_output="b"), "'b' is no node; nodes: a"),
    "a later reference": (
        nodes(node("a", "see {b}"), node("b")),
        re.escape("node 'a': its input refers to 'b', which does not run before it"),
    ),
    "no such field": (nodes(node("a", {"x": 1}), node("b", "{a.y}")), "has no 'y'; it has x"),
    "an operator": (
        nodes(node("a"), node("b"), edges=[edge("a", "b", {"operator": "is", "value": 1})]),
        "edges.0..when.operator: unknown operator 'is'",
    ),
    "a type": (
        nodes({"id": "a", "type": "sya"}),
        "node 'a' .sya.: nothing runs nodes of this type .registered: say.; register",
    ),
    "register": ({**nodes(node("a")), "register": 1}, "'register' is a function"),
    "config": (nodes(node("a", config=1)), "config: expected a mapping"),
    "no JSON": (nodes(node("a"), run=lambda value: object()), "node 'a' .say.: what JSON cannot"),
}


@pytest.mark.parametrize(("returned", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_says_what_and_where(returned: Any, message: str) -> None:
    assert re.search(message, failure(returned)), failure(returned)


FORMS = {
    "an object": lambda registry: registry.register(Node("say", lambda given, context: given)),
    "a type and a function": lambda registry: registry.register("say", say),
    "the last of two": lambda registry: [
        registry.register("say", lambda given: 1 / 0),
        registry.register("say", say),
    ],
}


@pytest.mark.parametrize("register", FORMS.values(), ids=FORMS)
def test_nodes_are_registered_in_any_form(register: Any) -> None:
    returned = {**nodes(node("a", "x")), "register": register}
    assert execute(returned).output == "x"


RUNS = {
    "input and context": lambda input, *, context: [input, context.node_id],  # noqa: A006
    "input alone": lambda value: [value, "a"],
    "context first": lambda context, value: [value, context.node_id],
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_run_gets_what_it_takes(run: Any) -> None:
    assert execute(nodes(node("a", "x"), run=run)).output == '["x", "a"]'


def test_register_may_be_async() -> None:
    returned = nodes(node("a", "x"))

    async def register(registry: Any, *, mode: str) -> None:
        await asyncio.sleep(0)
        registry.register("say", lambda value: value + mode)

    assert execute({**returned, "register": register}).output == "xreplay"


def test_the_context_of_a_node_knows_where_it_stands() -> None:
    def run(value: Any, context: Any) -> Any:
        config = dict(context.config)
        return [context.node_type, dict(context.outputs), config, context.case_id]

    evidence = execute(
        nodes(node("a", 1, config={"tone": "dry"}), node("b", 1, config={"k": 1}), run=run)
    )
    state = evidence.details["state"]
    assert state["a"] == ["say", {}, {"tone": "dry"}, "c1"]
    assert state["b"] == ["say", {"a": state["a"]}, {"tone": "kind", "k": 1}, "c1"]


def broken(value: Any) -> Any:
    if value == "break":
        raise ValueError("boom")
    return value


def test_a_node_that_raises_ends_the_flow_with_its_name() -> None:
    returned = nodes(node("a", "x"), node("b", "break"), node("c", "y"), run=broken)
    assert failure(returned).startswith("node 'b' (say): ValueError: boom (")


def test_what_runs_beside_a_node_that_fails_is_stopped() -> None:
    stopped: list[str] = []
    began = asyncio.Event()

    async def run(value: Any) -> Any:
        if value == "break":
            await began.wait()
            raise ValueError("boom")
        try:
            began.set()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(value)
            raise

    returned = nodes(
        node("s", "break"),
        node("slow", "slow"),
        node("z"),
        edges=[edge("s", "z"), edge("slow", "z")],
        run=run,
    )
    assert "node 's'" in failure(returned)
    assert stopped == ["slow"]


class Model:
    """Answers calls; notes them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def __call__(self, request: Request) -> Reply:
        if self.error is not None:
            raise self.error
        said = request.messages[-1]["content"]
        return Reply(text=f"re: {said}", usage=Usage(3, 4), latency_ms=5.0, cost_usd=0.5)


async def chatting(value: Any, *, context: Any) -> str:
    reply = await context.chat(messages=str(value), model="gpt-x")
    return str(reply.text)


def test_calls_of_nodes_are_counted_by_node() -> None:
    evidence = execute(nodes(node("a", "x"), node("b", "{a}!"), run=chatting), Model())
    assert evidence.outputs == {"a": "re: x", "b": "re: re: x!"}
    assert [call["block"] for call in evidence.details["calls"]] == ["a", "b"]
    assert evidence.block_metrics["a"].cost_usd == 0.5
    assert evidence.block_metrics["a"].input_tokens == 3


def test_calls_of_nodes_are_events() -> None:
    store = MemoryRunStore()
    providers = {"ask": {"kind": "openai", "options": {"model": "m", "base_url": "http://x/v1"}}}
    asked = {"id": "b", "type": "ask", "input": "{a}"}
    execute(nodes(node("a", "x"), asked, run=chatting), Model(), store, providers=providers)
    events = asyncio.run(store.load_events())
    of_nodes = [(event.type, event.block) for event in events if event.block is not None]
    assert of_nodes == [
        (type_, name)
        for name in ("a", "b")
        for type_ in ("block_started", "model_call", "block_completed")
    ]
    calls = [event.data for event in events if event.type == "model_call"]
    assert [(call["model"], call["cost_usd"]) for call in calls] == [("gpt-x", 0.5), ("m", 0.5)]


class NodeModel(BaseModel):
    id: str
    type: str
    input: Any = None


async def replying(value: Any, context: Any) -> Any:
    return await context.chat(messages=str(value), model="gpt-x")


@pytest.mark.parametrize(
    ("run", "output"),
    [
        (replying, "re: x"),
        (lambda value: NodeModel(id=value, type="t"), '{"id": "x", "type": "t", "input": null}'),
        (lambda value: (value, 1), '["x", 1]'),
        (lambda value: None, "null"),
        (lambda value: Evidence(f"{value}"), "x"),
    ],
)
def test_a_node_returns_any_json_value_a_reply_or_a_model(run: Any, output: str) -> None:
    assert execute(nodes(node("a", "x"), run=run), Model()).output == output


def test_a_limit_of_the_run_is_no_error_of_the_node() -> None:
    with pytest.raises(SkippedError):
        execute(
            nodes(node("a", "x"), run=chatting),
            Model(SkippedError("budget", "the money is spent")),
        )


def test_the_target_of_a_types_name_answers_if_the_type_is_not_registered() -> None:
    providers = {
        "claude.agent": {"kind": "command", "options": {"command": ["cat"]}},
        "say": {"kind": "mock", "options": {"response": "never asked"}},
        "canned": {"kind": "mock", "options": {"response": "canned"}},
    }
    listed = [
        {"id": "a", "type": "claude.agent", "input": {"prompt": "hello"}},
        {"id": "b", "type": "claude.agent", "input": {"task": "{a}"}},
        node("c", "own"),
        {"id": "d", "type": "canned", "config": {"response": "laid over"}},
    ]
    evidence = execute(nodes(*listed), providers=providers)
    assert evidence.outputs == {
        "a": "hello",
        "b": '{"task": "hello"}',
        "c": "own",
        "d": "laid over",
    }


def test_a_target_that_fails_is_named_with_its_node() -> None:
    providers = {"bad": {"kind": "command", "options": {"command": ["false"]}}}
    message = failure(nodes({"id": "a", "type": "bad", "input": "x"}), providers=providers)
    assert message == "node 'a' (bad): the command ended with exit code 1"


def test_events_and_a_snapshot_are_kept() -> None:
    store = MemoryRunStore()
    never = {"exists": {"var": "never"}}
    execute(nodes(node("a", "x"), node("b"), edges=[edge("a", "b", never)]), store=store)
    events = asyncio.run(store.load_events())
    assert [(event.type, event.block) for event in events] == [
        ("workflow_started", None),
        ("block_started", "a"),
        ("block_completed", "a"),
        ("block_skipped", "b"),
        ("workflow_completed", None),
    ]
    snapshot = asyncio.run(store.load_snapshot())
    assert snapshot is not None
    assert (snapshot.state, snapshot.outputs) == ("completed", {"a": "x"})


def test_a_flow_that_fails_leaves_a_snapshot_of_what_ran() -> None:
    store = MemoryRunStore()
    failure(nodes(node("a", "x"), node("b", "break"), run=broken), store=store)
    snapshot = asyncio.run(store.load_snapshot())
    assert snapshot is not None
    assert (snapshot.state, snapshot.outputs) == ("failed", {"a": "x"})
    assert "boom" in (snapshot.error or "")

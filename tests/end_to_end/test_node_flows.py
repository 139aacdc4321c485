"""Flows of nodes from suite files and from Python, recorded and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalcore import define_suite, gates, run_suite, variant
from tests.support.model_server import ModelServer, model_server
from tests.support.model_wire import Question
from tests.support.shell import Ended, comparable, evalcore

FLOWS = """
class Agent:
    type = "claude.agent"

    def __init__(self, model):
        self.model = model

    async def run(self, input, *, context):
        reply = await context.chat(messages=input["task"], model=self.model)
        return {"code": reply.text, "mode": context.mode}


def my_workflow(case_input, variant):
    def register(registry, mode):
        registry.register(Agent(variant.model))

    return {
        "flow": {
            "name": "my-workflow",
            "nodes": [{"id": "main", "type": "claude.agent", "input": case_input}],
            "edges": [],
        },
        "register": register,
        "primaryOutputNodeId": "main",
    }


def unregistered(case_input):
    nodes = [{"id": "main", "type": "claude.agent", "input": {"prompt": case_input["task"]}}]
    return {"flow": {"name": "w", "nodes": nodes, "edges": []}, "primary_output_node_id": "main"}


def forgotten(case_input):
    nodes = [{"id": "main", "type": "claude.agent", "input": case_input}]
    return {"name": "my-workflow", "nodes": nodes, "edges": []}
"""


@pytest.fixture
def server() -> Iterator[ModelServer]:
    def code(question: Question) -> str:
        return f"app.get('/') // {question.text}"

    with model_server(script=code) as server:
        yield server


def suite(flow: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "nodes",
        "flow": flow,
        "variants": [{"id": "sonnet", "model": "m1"}, {"id": "opus", "model": "m2"}],
        "baseline": "sonnet",
        "gates": [{"gate": "no_regressions", "allow_metric_regressions": True}],
        "cases": [
            {
                "id": "hello-api",
                "input": {"task": "Build a hello world Express API"},
                "assertions": [
                    {"type": "behavior.no_errors"},
                    {"type": "behavior.node_executed", "nodeId": "main"},
                    {"type": "output.contains", "path": "outputs.main.code", "value": "app.get"},
                ],
            }
        ],
        **more,
    }


def run(folder: Path, document: dict[str, Any], *arguments: str, url: str = "") -> Ended:
    (folder / "flows.py").write_text(FLOWS)
    (folder / "suite.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url}
    return evalcore(
        "run", "suite.yaml", "--json", *arguments, store=folder / "store", cwd=folder, env=env
    )


def test_calls_of_nodes_are_recorded_and_replayed(tmp_path: Path, server: ModelServer) -> None:
    document = suite("flows:my_workflow")
    url = f"{server.base_url}"
    recorded = run(tmp_path, document, "--mode", "record", url=url)
    assert recorded.code == 0, recorded.out + recorded.err
    assert server.stats().requests == 2
    run_id = recorded.report["run"]["id"]
    kept = [path.read_text() for path in tmp_path.glob(f"store/runs/*/{run_id}/events/*/*/*.jsonl")]
    assert len(kept) == 2
    assert all('"block_completed"' in events and '"main"' in events for events in kept)
    first, again = (
        run(tmp_path, document, "--mode", "replay", url="http://127.0.0.1:1") for _ in range(2)
    )
    assert comparable(first.report) == comparable(again.report)
    assert (first.code, server.stats().requests) == (0, 2)
    items = [item for case in first.report["cases"] for item in case["items"]]
    assert all(item["metrics"]["output_tokens"] for item in items)


def test_an_agent_that_nobody_registers_is_the_target_of_that_name(tmp_path: Path) -> None:
    command = ["sed", "s/.*/app.get: &/"]
    target = {"name": "claude.agent", "provider": "command", "command": command}
    document = suite("flows:unregistered", targets=[target])
    document["cases"][0]["assertions"][2]["path"] = "outputs.main"
    ended = run(tmp_path, document)
    assert ended.code == 0, ended.out + ended.err
    del document["targets"]
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump({"targets": [target]}))
    assert run(tmp_path, document).code == 0


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (
            "flows:unregistered",
            "nothing runs nodes of this type (registered: nothing)",
        ),
        ("flows:forgotten", "returned a mapping with the keys 'name', 'nodes', 'edges'"),
    ],
)
def test_a_flow_that_nothing_runs_is_an_error(tmp_path: Path, flow: str, message: str) -> None:
    ended = run(tmp_path, suite(flow))
    items = [item for case in ended.report["cases"] for item in case["items"]]
    assert all(message in item["error"]["message"] for item in items)
    assert ended.report["counts"]["error"] == 2
    assert ended.code != 0


def test_a_flow_of_nodes_is_run_from_python(tmp_path: Path) -> None:
    def my_workflow(case_input: Any, variant: Any) -> Any:
        def register(registry: Any, mode: str) -> None:
            registry.register("agent", lambda given: f"{variant.model}: {given['task']}")

        flow = {"name": "w", "nodes": [{"id": "main", "type": "agent", "input": case_input}]}
        return {"flow": flow, "register": register, "primaryOutputNodeId": "main"}

    defined = define_suite(
        name="from-python",
        flow=my_workflow,
        cases=[
            {
                "id": "one",
                "input": {"task": "x"},
                "assertions": [
                    {"type": "output.matches", "value": "^m[12]: x$"},
                    {"type": "behavior.node_invocations.max", "nodeId": "main", "value": 1},
                ],
            }
        ],
        variants=[variant("a", model="m1"), variant("b", model="m2")],
        baseline="a",
        gates=[gates.no_regressions(allow_metric_regressions=True), gates.pass_rate(1.0)],
    )
    report = run_suite(defined, store=tmp_path / "store")
    assert report.passed
    assert report.case_results[0].artifact.outputs["main"] == "m1: x"


def test_nodes_that_are_the_same_for_all_cases_need_no_factory(tmp_path: Path) -> None:
    def register(registry: Any) -> None:
        registry.register("upper", lambda given: given.upper())

    defined = define_suite(
        name="fixed",
        flow={"flow": {"nodes": [{"id": "a", "type": "upper"}]}, "register": register},
        cases=[{"id": "one", "input": "x", "assertions": [{"type": "equals", "value": "X"}]}],
        variants=["v"],
    )
    assert run_suite(defined, store=tmp_path / "store").passed

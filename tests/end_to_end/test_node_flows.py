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

"""Flows of files run in worker processes; what they ask of the engine is answered there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import ModelServer, model_server
from tests.support.processes import until
from tests.support.shell import Json, evalcore

pytestmark = pytest.mark.multiprocess

FLOWS = """
import os, sys

def values(case_input, variant, mode, context):
    return {"outputs": {"n": 5}, "state": {"pid": os.getpid(), "variant": variant.id, "mode": mode}}

def factory(case_input, variant):
    async def run(case_input, context):
        return f"{context.case_id} {variant.config['tone']} {case_input}"
    return run

def definition(case_input):
    blocks = {"b": {"type": "code", "code": "def main(data):\\n    return 'from a block'"}}
    return {"flow": {"version": "1.0", "blocks": blocks}, "primary_output": "b"}

async def asks(case_input, context):
    reply = await context.chat(messages=[{"role": "user", "content": case_input}], model="m")
    return f"said {reply.text}"

def asks_sync(case_input, context):
    return f"said {context.chat_sync(messages=case_input, model='m').text}"

async def asks_named(case_input, context):
    return f"said {(await context.chat(messages=case_input, provider='named')).text}"

def asks_named_sync(case_input, context):
    return f"said {context.chat_sync(messages=case_input, provider='named').text}"

def waits(case_input, context):
    stopped = context.cancel.wait(600)
    if stopped:
        open("cancelled", "w").close()
    return "late"

def parent(case_input):
    return "evalcore" if "evalcore.cli.run" in sys.modules else "worker"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flows")
    (folder / "flows_here.py").write_text(FLOWS)
    return folder


def run(
    folder: Path, flow: object, server: ModelServer | None = None, *flags: str, **more: object
) -> Json:
    """Return the one item of a suite with this flow."""
    check = {"type": "not-contains", "value": "never said"}
    suite = {
        "name": "flows",
        "flow": flow,
        "variants": [{"id": "v", "config": {"tone": "kind"}}],
        "cases": [{"id": "c", "input": "hello", "assertions": [check]}],
        **more,
    }
    path = folder / "suite.yaml"
    path.write_text(json.dumps(suite))
    env = {} if server is None else {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k"}
    ended = evalcore("run", path, "--json", *flags, store=folder / "store", cwd=folder, env=env)
    item: Json = ended.report["cases"][0]["items"][0]
    return item


@pytest.mark.parametrize(
    ("flow", "output"), [("factory", "c kind hello"), ("definition", "from a block")]
)
def test_a_flow_answers_from_a_worker(folder: Path, flow: str, output: str) -> None:
    item = run(folder, f"flows_here:{flow}")
    assert item["assertions"][0]["actual"] == output


def test_a_flow_runs_in_another_process_unless_it_says_inline(folder: Path) -> None:
    apart = run(folder, "flows_here:parent")
    inline = run(folder, {"callable": "flows_here:parent", "isolation": "inline"})
    assert inline["assertions"][0]["actual"] == "evalcore"
    assert apart["assertions"][0]["actual"] == "worker"


@pytest.mark.parametrize(
    "flow",
    [
        "flows_here:asks",
        {"provider": "python", "callable": "flows_here:asks_sync", "isolation": "inline"},
    ],
    ids=["flow", "inline"],
)
def test_a_model_call_of_a_function_is_recorded_and_replayed(
    folder: Path, server: ModelServer, flow: object
) -> None:
    recorded = run(folder, flow, server, "--mode", "record")
    calls = server.stats()
    replayed = run(folder, flow, None, "--mode", "replay")
    assert recorded["outcome"] == "passed"
    assert recorded["metrics"]["output_tokens"] > 0
    assert replayed == recorded
    assert server.stats() == calls


@pytest.mark.parametrize(
    ("function", "isolation", "reasoning", "said"),
    [
        ("asks_named_sync", {}, "keep", "said <think>Berlin?</think> Rome"),
        ("asks_named", {"isolation": "inline"}, "strip", "said Rome"),
    ],
)
def test_a_model_that_a_function_asks_strips_its_reasoning(
    folder: Path, function: str, isolation: Json, reasoning: str, said: str
) -> None:
    with model_server(script=lambda _: "<think>Berlin?</think> Rome") as thinking:
        model = {"name": "named", "provider": "openai", "model": "m", "reasoning": reasoning}
        flow = {"callable": f"flows_here:{function}", **isolation}
        item = run(folder, flow, thinking, targets=[model])

    assert item["assertions"][0]["actual"] == said


def test_a_function_is_told_that_nothing_waits(folder: Path) -> None:
    text = json.dumps(
        {
            "targets": [{"name": "t", "provider": "python", "callable": "flows_here:waits"}],
            "execution": {"target": "t"},
            "evalcore": {"limits": {"timeout_s": 2}},
            "tests": [
                {"id": "slow", "input": "x", "assertions": [{"type": "is-json"}]},
            ],
        }
    )
    (folder / "waits.eval.yaml").write_text(text)
    evalcore("run", "waits.eval.yaml", store=folder / "store", cwd=folder)
    until((folder / "cancelled").exists)

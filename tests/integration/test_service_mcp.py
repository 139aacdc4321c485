"""The tools over both transports, called by the SDK's client, against real processes."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import orjson
import pytest
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from evalcore.service.models import CreateEval, CreateEvalRun, UpdateEval
from tests.support.mcp_client import over_http
from tests.support.service import EVALCORE, Service, eval_body, service, token_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
]
DOUBLED = {"kind": "equals", "expected": 42}
TOOLS = {
    "workflows_evals_create",
    "workflows_evals_list",
    "workflows_evals_get",
    "workflows_evals_update",
    "workflows_evals_delete",
    "workflows_evals_runs_create",
    "workflows_evals_runs_get",
    "workflows_evals_results_list",
    "workflows_evals_results_get",
}
Answer = TypeVar("Answer")
Transport = Callable[[Service], Any]


@asynccontextmanager
async def over_stdio(served: Service, *arguments: str) -> AsyncIterator[Client]:
    environment = {"EVALCORE_SERVICE": served.url, "EVALCORE_TOKEN": served.token or ""}
    parameters = StdioServerParameters(
        command=EVALCORE, args=["mcp", *arguments], env=environment, cwd=served.folder
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


TRANSPORTS = pytest.mark.parametrize("transport", [over_http, over_stdio], ids=["http", "stdio"])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("service"), "--rate", "0") as running:
        yield running


def connected(
    transport: Transport, served: Service, talk: Callable[[Client], Awaitable[Answer]]
) -> Answer:
    """Return what a conversation with a connected client comes to."""

    async def run() -> Answer:
        async with transport(served) as client:
            return await talk(client)

    return asyncio.run(run())


async def answered(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured answer of a tool, which has to succeed."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    assert not result.is_error, result.content
    (text,) = result.content
    assert isinstance(text, types.TextContent)
    assert orjson.loads(text.text) == result.structured_content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of a tool's error."""
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    assert result.is_error, result.structured_content
    (text,) = result.content
    assert isinstance(text, types.TextContent)
    return text.text


async def ended(client: Client, run: Any) -> Any:
    deadline = time.monotonic() + 60
    while run["lifecycle"]["status"] not in {"completed", "error", "cancelled"}:
        assert time.monotonic() < deadline, run
        await asyncio.sleep(0.05)
        run = await answered(client, "workflows_evals_runs_get", run_id=run["id"])
    return run


@TRANSPORTS
def test_a_model_saves_an_eval_runs_it_and_reads_its_result(
    served: Service, transport: Transport
) -> None:
    workflow = served.register()

    async def talk(client: Client) -> None:
        body = {**eval_body(workflow, DOUBLED), "name": "total"}
        saved = await answered(client, "workflows_evals_create", **body)
        assert saved == served.get(f"/v1/workflows/evals/{saved['id']}")
        run = await answered(client, "workflows_evals_runs_create", workflow_id=workflow)
        assert run["trigger"] == {"type": "mcp"}
        run = await ended(client, run)
        assert run == served.get(f"/v1/workflows/evals/runs/{run['id']}")
        assert run["counts"]["outcome"] == {"passed": 1, "failed": 0, "blocked": 0}
        page = await answered(client, "workflows_evals_results_list", run_id=run["id"], limit=5)
        (row,) = page["data"]
        result = await answered(client, "workflows_evals_results_get", result_id=row["id"])
        assert result == row == served.get(f"/v1/workflows/evals/results/{row['id']}")
        shown = await answered(client, "workflows_evals_get", eval_id=saved["id"])
        assert shown["latest_run_summary"]["outcome"] == "passed"

    connected(transport, served, talk)


@TRANSPORTS
def test_a_model_lists_changes_and_deletes_evals(served: Service, transport: Transport) -> None:
    workflow = served.register()
    saved = served.save(workflow, DOUBLED)

    async def talk(client: Client) -> None:
        changed = await answered(client, "workflows_evals_update", eval_id=saved, name="new")
        assert changed["name"] == "new"
        cleared = await answered(client, "workflows_evals_update", eval_id=saved, name=None)
        assert cleared["name"] is None
        page = await answered(
            client, "workflows_evals_list", workflow_id=workflow, target_block_id="extract"
        )
        assert page == served.get("/v1/workflows/evals", workflow_id=workflow)
        deleted = await answered(client, "workflows_evals_delete", eval_id=saved)
        assert deleted == {"id": saved, "deleted": True}
        message = await refused(client, "workflows_evals_get", eval_id=saved)
        assert message == f"eval '{saved}' does not exist"

    connected(transport, served, talk)


def body_with(workflow: str, **changes: Any) -> dict[str, Any]:
    return {**eval_body(workflow, DOUBLED), **changes}


MISTAKES: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "missing": (lambda _: {}, "body.workflow_id: Field required"),
    "misspelt key": (
        lambda workflow: body_with(workflow, nam="x"),
        "body.nam: Extra inputs are not permitted. Did you mean 'name'?",
    ),
    "legacy key of an inner mapping": (
        lambda workflow: body_with(workflow, inputs={}),
        "body.inputs: Extra inputs are not permitted. Did you mean 'source.handle_inputs'?",
    ),
    "misspelt condition": (
        lambda workflow: eval_body(workflow, {"kind": "equal", "expected": 1}),
        "Did you mean 'equals'?",
    ),
    "unknown block": (
        lambda workflow: body_with(workflow, target={"type": "block", "block_id": "extrct"}),
        "body.target.block_id: the workflow has no block 'extrct'; it has extract, label",
    ),
    "unknown workflow": (
        lambda _: eval_body("wf_none", DOUBLED),
        "workflow 'wf_none' does not exist",
    ),
}


@pytest.mark.parametrize(("body_of", "text"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_call_has_the_text_of_rest(
    served: Service, body_of: Callable[[str], dict[str, Any]], text: str
) -> None:
    body = body_of(served.register())
    message = connected(
        over_http, served, lambda client: refused(client, "workflows_evals_create", **body)
    )
    assert text in message
    detail = served.client.post("/v1/workflows/evals", json=body).json()["detail"]
    lines = (
        [detail]
        if isinstance(detail, str)
        else [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in detail]
    )
    assert message.splitlines() == lines


CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "an assertion of null": (
        "workflows_evals_update",
        {"eval_id": "EVAL", "assertion": None},
        "assertion cannot be null",
    ),
    "a path that goes on": (
        "workflows_evals_runs_get",
        {"run_id": "x/cancel?a=b"},
        "eval run 'x/cancel?a=b' does not exist",
    ),
    "a misspelt filter": (
        "workflows_evals_results_list",
        {"runid": "x"},
        "query.runid: Extra inputs are not permitted. Did you mean 'run_id'?",
    ),
    "a field of the scope": (
        "workflows_evals_runs_create",
        {"workflow_id": "x", "eval_id": "y"},
        "body.eval_id: Extra inputs are not permitted. Did you mean 'scope.eval_id'?",
    ),
    "a run without evals": (
        "workflows_evals_runs_create",
        {"workflow_id": "EMPTY"},
        "the scope selects no saved eval",
    ),
}


@TRANSPORTS
def test_errors_are_answers_of_the_tool(served: Service, transport: Transport) -> None:
    empty, saved = served.register(), served.save(served.register(), DOUBLED)
    actual = {"EVAL": saved, "EMPTY": empty}

    async def talk(client: Client) -> None:
        for tool, arguments, text in CALLS.values():
            named = {
                name: actual.get(value, value) if isinstance(value, str) else value
                for name, value in arguments.items()
            }
            assert text in await refused(client, tool, **named)

    connected(transport, served, talk)


def test_a_body_that_is_nested_too_deep_is_a_mistake(served: Service) -> None:
    nested: Any = 1
    for _ in range(220):
        nested = [nested]
    message = connected(
        over_http, served, lambda client: refused(client, "workflows_evals_create", name=nested)
    )
    assert "body.name: " in message


@TRANSPORTS
def test_an_unknown_tool_is_told_with_the_nearest(served: Service, transport: Transport) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(MCPError, match="Did you mean 'workflows_evals_get'"):
            await client.call_tool("workflow_evals_get", {})

    connected(transport, served, talk)


def without_beside(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the schema of the body: without names, and without what the class is called."""
    properties = {key: of for key, of in schema["properties"].items() if key not in names}
    required = [key for key in schema.get("required", ()) if key not in names]
    named = {key: of for key, of in schema.items() if key not in {"title", "description"}}
    return {**named, "properties": properties, "required": required}


@TRANSPORTS
def test_the_schemas_of_tools_are_those_of_the_bodies(
    served: Service, transport: Transport
) -> None:
    listed = connected(transport, served, lambda client: client.list_tools())
    schemas = {tool.name: tool.input_schema for tool in listed.tools}
    assert set(schemas) == TOOLS
    for tool, body, names in (
        ("workflows_evals_create", CreateEval, ()),
        ("workflows_evals_update", UpdateEval, ("eval_id",)),
        ("workflows_evals_runs_create", CreateEvalRun, ("idempotency_key",)),
    ):
        assert set(names) <= set(schemas[tool]["properties"])
        assert without_beside(schemas[tool], *names) == without_beside(body.model_json_schema())


def test_tools_say_what_they_do_to_the_service(served: Service) -> None:
    listed = connected(over_http, served, lambda client: client.list_tools())
    hints = {
        tool.name.removeprefix("workflows_evals_"): (
            tool.annotations.read_only_hint,
            tool.annotations.destructive_hint,
            tool.annotations.idempotent_hint,
        )
        for tool in listed.tools
        if tool.annotations is not None
    }
    reading = (True, False, True)
    assert hints == {
        "create": (False, False, False),
        "list": reading,
        "get": reading,
        "update": (False, True, True),
        "delete": (False, True, True),
        "runs_create": (False, False, False),
        "runs_get": reading,
        "results_list": reading,
        "results_get": reading,
    }
    assert all(tool.output_schema and tool.title for tool in listed.tools)


def test_a_client_with_the_handshake_of_earlier_versions_is_answered(served: Service) -> None:
    async def run() -> set[str]:
        async with over_http(served, "legacy") as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert asyncio.run(run()) == TOOLS


def test_a_token_that_only_reads_cannot_write(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("scopes")
    reading, writing = token_of(folder, "read"), token_of(folder)
    with service(folder, token=writing) as writer:
        reader = Service(writer.url, folder, reading)
        workflow = writer.register()
        saved = writer.save(workflow, DOUBLED)

        async def talk(client: Client) -> None:
            page = await answered(client, "workflows_evals_list", workflow_id=workflow)
            assert [row["id"] for row in page["data"]] == [saved]
            message = await refused(client, "workflows_evals_delete", eval_id=saved)
            assert message == "this token has the scope 'read', not 'evals'"

        for transport in (over_http, over_stdio):
            connected(transport, reader, talk)
        connected(
            over_http,
            writer,
            lambda client: answered(client, "workflows_evals_delete", eval_id=saved),
        )


def test_mcp_without_a_valid_token_is_401(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    with service(folder, token=token_of(folder)) as served:
        for headers in ({}, {"Authorization": "Bearer evc_x_y"}, {"Authorization": "Basic x"}):
            answer = httpx.post(f"{served.url}/mcp", json={}, headers=headers, timeout=60)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        without = Service(served.url, folder)
        message = connected(
            over_stdio, without, lambda client: refused(client, "workflows_evals_get", eval_id="x")
        )
        assert "a bearer token is required" in message


def test_a_service_that_is_away_is_an_error_of_the_tool(tmp_path: Path) -> None:
    away = Service("http://127.0.0.1:9", tmp_path)
    message = connected(
        over_stdio, away, lambda client: refused(client, "workflows_evals_get", eval_id="x")
    )
    assert "start it with `evalcore serve`" in message


def test_a_server_with_its_own_database_needs_no_service(served: Service, tmp_path: Path) -> None:
    with service(tmp_path) as first:
        workflow = first.register()
    alone = Service("http://127.0.0.1:9", tmp_path)

    @asynccontextmanager
    async def embedded(served: Service) -> AsyncIterator[Client]:
        async with over_stdio(served, "--database", "evalcore.db") as client:
            yield client

    async def talk(client: Client) -> Any:
        await answered(client, "workflows_evals_create", **eval_body(workflow, DOUBLED))
        run = await answered(client, "workflows_evals_runs_create", workflow_id=workflow)
        return await ended(client, run)

    assert connected(embedded, alone, talk)["counts"]["outcome"]["passed"] == 1


def test_without_the_sdk_the_rest_of_the_service_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "mcp.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')"
    )
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    needed = "the MCP server needs the extra 'mcp': pip install 'evalcore-pipeline[mcp]'"
    with service(tmp_path) as served:
        served.register()
        answer = served.client.post("/mcp", json={})
        assert (answer.status_code, answer.json()) == (501, {"detail": needed})
    called = subprocess.run([EVALCORE, "mcp"], capture_output=True, text=True, check=False)
    assert (called.returncode, called.stderr.strip()) == (2, needed)

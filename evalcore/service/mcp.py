"""The Model Context Protocol, at `/mcp` and over standard input: nine tools.

They call the functions that the routes call, with the same tokens, scopes and rates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final, Literal, NamedTuple

import httpx
import orjson
from fastapi import Request
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy.exc import DBAPIError
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from evalcore.service import evals, runs
from evalcore.service.auth import Caller, Scope, refuse_foreign_pages
from evalcore.service.context import Context
from evalcore.service.errors import (
    OUTAGES,
    ServiceError,
    bounded_detail,
    outage_detail,
    unstorable,
    wire_mistakes,
)
from evalcore.service.evals import EvalQuery
from evalcore.service.models import (
    CreateEval,
    CreateEvalRun,
    Identifier,
    Page,
    RequestBody,
    ResponseBody,
    UpdateEval,
    WorkflowEval,
    WorkflowEvalResult,
    WorkflowEvalRun,
)
from evalcore.service.requests import authenticate, require_storable
from evalcore.service.runs import ResultQuery
from evalcore.version import VERSION
from evalcore.wording import did_you_mean

_TIMEOUT_S: Final = 60.0
_INSTRUCTIONS: Final = (
    "evalcore keeps saved evals: each freezes the inputs of one block of a registered workflow and "
    "asserts one thing about the block's output. Save evals, run them, read the run until it has "
    "ended, then list its results."
)
_NEXT_PAGE: Final = (
    "For the next page pass `list_metadata.after` as `after`; null means that there is none."
)


class EvalId(RequestBody):
    """Which eval."""

    eval_id: Identifier


class RunId(RequestBody):
    """Which run."""

    run_id: Identifier


class ResultId(RequestBody):
    """Which result."""

    result_id: Identifier


class ChangedEval(UpdateEval, EvalId):
    """The eval and what is changed: omitted fields stay as they are."""


class StartedRun(CreateEvalRun):
    """The run, and a name for the request: sent again, it gives the same run."""

    idempotency_key: Annotated[str | None, Field(min_length=1, max_length=255)] = None


class DeletedResource(ResponseBody):
    """That a resource was deleted."""

    id: str
    deleted: Literal[True]


class Tool(NamedTuple):
    """A tool: `call` is given arguments of the shape, which is the `part` of the REST request."""

    title: str
    advice: str
    route: Callable[..., Any]
    arguments: type[BaseModel]
    part: Literal["body", "query", "path"]
    call: Callable[[Any, Context], Awaitable[BaseModel]]
    answer: type[BaseModel]
    reads: bool = False
    replaces: bool = False
    repeatable: bool = False

    def described(self, name: str) -> types.Tool:
        """Return the tool as the protocol describes it.

        A run may call models and services outside: a tool that starts one is in an open world.
        """
        return types.Tool(
            name=name,
            title=self.title,
            description=f"{self.route.__doc__} {self.advice}",
            input_schema=self.arguments.model_json_schema(),
            output_schema=self.answer.model_json_schema(mode="serialization"),
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=self.reads,
                destructive_hint=self.replaces,
                idempotent_hint=self.reads or self.repeatable,
                open_world_hint=self.route is runs.create_run,
            ),
        )

    def read(self, arguments: Mapping[str, Any]) -> BaseModel:
        """Return the arguments of a call. Raises `ServiceError` 422 with the text of REST."""
        if self.part == "query":
            arguments = {name: value for name, value in arguments.items() if value is not None}
        require_storable(arguments)
        try:
            return self.arguments.model_validate(arguments, from_attributes=True)
        except ValidationError as error:
            found = [
                {**each, "loc": (self.part, *each["loc"])}
                for each in error.errors(include_url=False)
            ]
            raise ServiceError(422, wire_mistakes(found, {self.part: self.arguments})) from None


async def _delete(named: EvalId, context: Context) -> DeletedResource:
    await evals.delete(named.eval_id, context)
    return DeletedResource(id=named.eval_id, deleted=True)


async def _start(asked: StartedRun, context: Context) -> WorkflowEvalRun:
    body = CreateEvalRun(workflow_id=asked.workflow_id, scope=asked.scope)
    return await runs.create_run(body, context, asked.idempotency_key, "mcp")


TOOLS: Final[Mapping[str, Tool]] = {
    "workflows_evals_create": Tool(
        "Save an eval",
        "`target` names the block. `source` has its inputs by handle (`type: manual`), or the "
        "workflow run whose step received them (`type: run_step`). `assertion` is one condition "
        "on one output handle, such as `{target: {output_handle_id: output-json-0, path: total}, "
        "condition: {kind: equals, expected: 42}}`; without `path` it is on the whole output. "
        "Saving runs nothing: call `workflows_evals_runs_create` next.",
        evals.create,
        CreateEval,
        "body",
        evals.create,
        WorkflowEval,
    ),
    "workflows_evals_list": Tool(
        "List saved evals",
        f"Each has its drift, its freshness and its latest outcome. {_NEXT_PAGE}",
        evals.list_all,
        EvalQuery,
        "query",
        evals.list_all,
        Page[WorkflowEval],
        reads=True,
    ),
    "workflows_evals_get": Tool(
        "Get a saved eval",
        "`assertion_drift_status: broken` means that the asserted path left the block's output; "
        "`freshness: stale` means that the eval should run again.",
        evals.get,
        EvalId,
        "path",
        lambda named, context: evals.get(named.eval_id, context),
        WorkflowEval,
        reads=True,
    ),
    "workflows_evals_update": Tool(
        "Change a saved eval",
        "`target`, `source` and `assertion` are replaced as a whole where they occur, and cannot "
        "be null. `name: null` takes the name away. Earlier results stay as they are.",
        evals.update,
        ChangedEval,
        "body",
        lambda body, context: evals.update(body.eval_id, body, context),
        WorkflowEval,
        replaces=True,
        repeatable=True,
    ),
    "workflows_evals_delete": Tool(
        "Delete a saved eval",
        "This cannot be undone.",
        evals.delete,
        EvalId,
        "path",
        _delete,
        DeletedResource,
        replaces=True,
        repeatable=True,
    ),
    "workflows_evals_runs_create": Tool(
        "Run saved evals",
        "Without `scope` every saved eval of the workflow runs; `{type: block, block_id}` and "
        "`{type: single, eval_id}` select fewer. The call returns at once: read the run with "
        "`workflows_evals_runs_get` until its lifecycle is completed, error or cancelled. With "
        "`idempotency_key`, a repeated call returns the same run.",
        runs.create_run,
        StartedRun,
        "body",
        _start,
        WorkflowEvalRun,
    ),
    "workflows_evals_runs_get": Tool(
        "Get a run of evals",
        "`counts.outcome` has the completed evals: passed, failed, or blocked (could not be "
        "evaluated). Evals whose execution failed are in `counts.lifecycle_counts.error`. The "
        "reasons are in `workflows_evals_results_list`.",
        runs.get_run,
        RunId,
        "path",
        lambda named, context: runs.get_run(named.run_id, context),
        WorkflowEvalRun,
        reads=True,
    ),
    "workflows_evals_results_list": Tool(
        "List results of evals",
        "Pass `run_id` for the results of one run. `assertion_result` has the actual value, the "
        f"expected value, and why the assertion failed or is blocked. {_NEXT_PAGE}",
        runs.list_results,
        ResultQuery,
        "query",
        runs.list_results,
        Page[WorkflowEvalResult],
        reads=True,
    ),
    "workflows_evals_results_get": Tool(
        "Get a result of an eval",
        "It has the inputs and outputs of the block, the verdict and the reason for it.",
        runs.get_result,
        ResultId,
        "path",
        lambda named, context: runs.get_result(named.result_id, context),
        WorkflowEvalResult,
        reads=True,
    ),
}

Called = Awaitable[types.CallToolResult]
Perform = Callable[[str, Mapping[str, Any], Request | None], Called]


class McpEndpoint:
    """The ASGI application at `/mcp`; each request stands alone, so any replica can answer it."""

    def __init__(self, context: Context) -> None:
        self._context = context

        def perform(name: str, arguments: Mapping[str, Any], request: Request | None) -> Called:
            assert request is not None  # noqa: S101 - every message comes with an HTTP request
            return _performed(context, request.state.caller, name, arguments)

        self._sessions = StreamableHTTPSessionManager(
            _server(perform),
            json_response=True,
            stateless=True,
            max_request_body_size=context.max_body_bytes,
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve requests in this context; it can be entered once."""
        return self._sessions.run()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises `ServiceError` 401, 403, 405 and 429."""
        request = Request(scope, receive)
        refuse_foreign_pages(request)
        await authenticate(self._context, request, Scope.READ)
        if request.method != "POST":
            raise ServiceError(405, "only POST is supported: the server has no streams")
        await self._sessions.handle_request(scope, receive, send)


async def serve_stdio(context: Context, caller: Caller) -> None:
    """Answer the messages of standard input until it ends, for one caller."""
    await _serve_stdio(lambda name, arguments, _: _performed(context, caller, name, arguments))


async def serve_remote(url: str, token: str | None) -> None:
    """Answer the messages of standard input by the tools of a running service."""
    headers = {"Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT_S) as http:

        async def perform(name: str, arguments: Mapping[str, Any], _: Any) -> types.CallToolResult:
            params = {"name": name, "arguments": arguments}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            try:
                answer = await http.post("/mcp", json=call)
            except httpx.TransportError as error:
                return _refusal(
                    f"the service at {url} does not answer ({error or type(error).__name__}); "
                    "start it with `evalcore serve`, or name another address in EVALCORE_SERVICE"
                )
            content = answer.json()
            if not answer.is_success:
                return _refusal(content.get("detail") or content["error"]["message"])
            return types.CallToolResult.model_validate(content["result"])

        await _serve_stdio(perform)


async def _serve_stdio(perform: Perform) -> None:
    # Output of other code goes to standard error meanwhile.
    server = _server(perform)
    async with stdio_server() as (messages, replies):
        await server.run(messages, replies, server.create_initialization_options())


def _server(perform: Perform) -> Server[Any]:
    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        described = [tool.described(name) for name, tool in TOOLS.items()]
        return types.ListToolsResult(tools=described)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in TOOLS:
            hint = did_you_mean(params.name, TOOLS)
            raise MCPError(types.INVALID_PARAMS, f"unknown tool '{params.name[:80]}'.{hint}")
        return await perform(params.name, params.arguments or {}, context.request)

    return Server(
        "evalcore",
        title="evalcore: saved evals of workflows",
        version=VERSION,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No schema asks for headers of the request.
        get_tool_input_schema=lambda _: None,
    )


async def _performed(
    context: Context, caller: Caller, name: str, arguments: Mapping[str, Any]
) -> types.CallToolResult:
    """Return what a call comes to; a refusal has the text of REST."""
    tool = TOOLS[name]
    try:
        caller.require(Scope.READ if tool.reads else Scope.EVALS)
        answer = await tool.call(tool.read(arguments), context)
    except ServiceError as error:
        return _refusal(bounded_detail(error.detail))
    except OUTAGES as error:
        return _refusal(outage_detail(error))
    except DBAPIError as error:
        return _refusal(unstorable(error).detail)
    text = answer.model_dump_json(by_alias=True)
    content = types.TextContent(type="text", text=text)
    return types.CallToolResult(content=[content], structured_content=orjson.loads(text))


def _refusal(detail: Any) -> types.CallToolResult:
    """Return the `detail` of a refused request as a tool's error: one line for each mistake."""
    if not isinstance(detail, str):
        detail = "\n".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in detail)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=detail)], is_error=True
    )

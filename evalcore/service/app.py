"""The application: its routes, its documentation, and how every failure looks on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_type_hints

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from jinja2 import Environment
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from evalcore.service import evals, files, runs, workflows
from evalcore.service.auth import OpenGuard
from evalcore.service.context import Context
from evalcore.service.errors import (
    NEEDS_EXTRA,
    OUTAGES,
    REFUSALS,
    ServiceError,
    bounded_detail,
    outage_detail,
    unstorable,
    wire_mistakes,
)
from evalcore.service.log import RequestLog
from evalcore.service.metrics import CONTENT_TYPE, exposition
from evalcore.service.models import ResponseBody
from evalcore.service.requests import CurrentContext
from evalcore.service.ui import PREFIX, PagesRoute, create_pages, open_site
from evalcore.version import VERSION

if TYPE_CHECKING:
    from evalcore.service.mcp import McpEndpoint

_FORM: Final = "multipart/form-data"
_DOCS: Final = Path(__file__).with_name("docs.html.j2")

operations = APIRouter(tags=["operations"], responses={503: REFUSALS[503]})
# Runs of workflows and of evals stand before `/{workflow_id}` and `/{eval_id}`.
_ROUTERS: Final = (
    operations,
    files.router,
    runs.router,
    evals.router,
    workflows.runs_router,
    workflows.router,
)


class Health(ResponseBody):
    """That the process answers."""

    status: Literal["ok"] = "ok"


@operations.get("/healthz")
async def healthz() -> Health:
    """Whether the process answers."""
    return Health()


@operations.get("/readyz")
async def readyz(context: CurrentContext) -> Health:
    """Whether the database and the object store answer, too, and the store is still the same."""
    async with context.database.reading() as session:
        await session.execute(text("SELECT 1"))
    await context.from_store(context.check_store)
    return Health()


@operations.get("/metrics", response_class=PlainTextResponse)
async def metrics(context: CurrentContext) -> Response:
    """Counters and times in Prometheus' text format."""
    return Response(await exposition(context.metrics, context.database), media_type=CONTENT_TYPE)


def create_application(context: Context) -> FastAPI:
    """Return the application; its workers start and stop with it."""
    endpoint, site = _mcp_endpoint(context), open_site(context)
    serves_tools = nullcontext() if endpoint is None else endpoint.running()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await context.start()
        try:
            async with serves_tools:
                yield
        finally:
            site.close()
            await context.stop()

    application = _Application(
        title="evalcore",
        version=VERSION,
        summary="Saved evals of workflows: create, run, read.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
    )
    application.state.context, application.state.site = context, site
    if context.open_to is not None:
        application.add_middleware(OpenGuard)
    # Added last, so that it notes what the others refuse.
    application.add_middleware(RequestLog, metrics=context.metrics)
    application.add_exception_handler(RequestValidationError, _invalid)
    application.add_exception_handler(HTTPException, _http_error)
    for outage in OUTAGES:
        application.add_exception_handler(outage, _unavailable)
    application.add_exception_handler(DBAPIError, _not_storable)
    for router in _ROUTERS:
        application.include_router(router)
    application.add_route("/", _first_page, include_in_schema=False)
    application.add_route("/docs", docs_page, include_in_schema=False)
    application.router.routes.append(
        _McpRoute(
            "/mcp",
            endpoint or _without_mcp,
            methods=None if endpoint else ["GET", "POST", "DELETE"],
            include_in_schema=False,
        )
    )
    application.router.routes.append(PagesRoute(create_pages(context, site)))
    return application


async def _first_page(_: Request) -> Response:
    return RedirectResponse(f"{PREFIX}/")


class _Application(FastAPI):
    """The application, whose OpenAPI document says that forms have no other fields.

    FastAPI makes the shape of a form itself, and leaves it open; routes refuse other fields.
    """

    def openapi(self) -> dict[str, Any]:
        """Return the document; it is made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            for _, _, operation in _operations(document):
                form = operation.get("requestBody", {}).get("content", {}).get(_FORM)
                if form is not None:
                    shape = document["components"]["schemas"][_shape_name(form)]
                    shape["additionalProperties"] = False
        return super().openapi()


def operation_id(route: APIRoute) -> str:
    """Return the name of an operation in the OpenAPI document."""
    tag = str(route.tags[0]).replace(" ", "_")
    return f"{tag}_{route.name}"


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method.upper(), operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


def _shape_name(content: dict[str, Any]) -> str:
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


async def docs_page(request: Request) -> Response:
    """Show the OpenAPI document as a page that needs nothing from elsewhere."""
    document = request.app.openapi()
    shapes = document["components"]["schemas"]
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, method, operation in _operations(document):
        bodies = []
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            examples = shapes[_shape_name(content)].get("examples", ())
            example = _json(examples[0]) if examples else None
            bodies.append((kind, {"name": _shape_name(content), "example": example}))
        answers = [
            (status, _shape_name(next(iter(answer.get("content", {}).values()), {})))
            for status, answer in operation["responses"].items()
        ]
        shown = {"path": path, "method": method, "bodies": bodies, "answers": answers}
        tags.setdefault(operation["tags"][0], []).append({**operation, **shown})
    texts = {
        name: {"description": shape.get("description", ""), "text": _json(shape)}
        for name, shape in sorted(shapes.items())
    }
    template = Environment(autoescape=True).from_string(_DOCS.read_text("utf-8"))
    return HTMLResponse(template.render(info=document["info"], tags=tags, shapes=texts))


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


# Refusals


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
    route = request.scope["route"]
    # The parameters of a route are named after the parts of a request.
    shapes = get_type_hints(route.endpoint)
    return JSONResponse({"detail": bounded_detail(wire_mistakes(error.errors(), shapes))}, 422)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - it is registered for this class
    headers = dict(error.headers or {})
    if error.status_code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods_at(request))) or headers.get("allow", "")
    return JSONResponse({"detail": bounded_detail(error.detail)}, error.status_code, headers)


def _methods_at(request: Request) -> set[str]:
    """Return the methods of all routes of a path; the router names those of the first one only."""
    routes = [
        route
        for router in _ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.matches(request.scope)[0] is not Match.NONE
    ]
    return {
        method for route in routes if route.path == routes[0].path for method in route.methods or ()
    }


async def _not_storable(_: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)  # noqa: S101 - it is registered for this class
    refusal = unstorable(error)
    return JSONResponse({"detail": refusal.detail}, refusal.status)


async def _unavailable(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": outage_detail(error)}, 503, {"Retry-After": "5"})


# MCP


class _McpRoute(Route):
    """A route that names itself, for the request log."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self}


async def _without_mcp(_: Request) -> Response:
    raise ServiceError(501, NEEDS_EXTRA)


def _mcp_endpoint(context: Context) -> McpEndpoint | None:
    """Return the MCP server; None without the SDK."""
    try:
        from evalcore.service.mcp import McpEndpoint
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        return None
    return McpEndpoint(context)

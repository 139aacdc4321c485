"""The application: its parts, its routes, and how every failure looks on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from evalcore.errors import StoreError
from evalcore.service.auth import OpenGuard
from evalcore.service.context import DamagedPayloadError, Parts
from evalcore.service.errors import OUTAGES, bounded_detail, wire_mistakes
from evalcore.service.log import RequestLog
from evalcore.service.mcp.mounting import mount_mcp
from evalcore.service.openapi_examples import add_examples
from evalcore.service.routes import eval_runs, evals, files, operations, workflow_runs, workflows
from evalcore.service.ui import PagesRoute, ProjectPages
from evalcore.version import VERSION

Handler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]
_FORM = "multipart/form-data"
_RETRY_AFTER = {"Retry-After": "5"}
# Runs of workflows and of evals stand before `/{workflow_id}` and `/{eval_id}`.
_ROUTERS = (operations, files, eval_runs, evals, workflow_runs, workflows)


def create_application(parts: Parts) -> FastAPI:
    """Return the application; its workers start and stop with it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await parts.start()
        try:
            async with mcp_endpoint.running():
                yield
        finally:
            pages.close()
            await parts.stop()

    application = _Application(
        title="evalcore",
        version=VERSION,
        summary="Saved evals of workflows: create, run, read.",
        lifespan=lifespan,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
    )
    application.state.parts = parts
    if parts.open_to is not None:
        application.add_middleware(OpenGuard, allowed_hosts=parts.allowed_hosts)
    # Added last, so that it notes what the others refuse.
    application.add_middleware(RequestLog, metrics=parts.metrics)
    application.add_exception_handler(RequestValidationError, _invalid)
    application.add_exception_handler(HTTPException, _http_error)
    for outage in OUTAGES:
        application.add_exception_handler(outage, _unavailable)
    application.add_exception_handler(DBAPIError, _not_storable)
    application.add_exception_handler(DamagedPayloadError, _damaged)
    for routes in _ROUTERS:
        application.include_router(routes.router)
    mcp_endpoint = mount_mcp(application, parts)
    pages = ProjectPages(parts)
    application.state.pages = pages
    application.router.routes.append(PagesRoute(pages.application))
    return application


class _Application(FastAPI):
    """The application, whose OpenAPI document has examples."""

    def openapi(self) -> dict[str, Any]:
        """Return the document; it is made once."""
        if self.openapi_schema is None:
            self.openapi_schema = add_examples(_with_closed_forms(super().openapi()))
        return self.openapi_schema


def _with_closed_forms(document: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document whose forms have no other fields: routes refuse those.

    FastAPI makes the shape of a form itself, and leaves it open.
    """
    shapes = document["components"]["schemas"]
    for methods in document["paths"].values():
        for operation in methods.values():
            form = operation.get("requestBody", {}).get("content", {}).get(_FORM)
            if form is not None:
                shape = shapes[form["schema"]["$ref"].rpartition("/")[2]]
                shape["additionalProperties"] = False
    return document


def operation_id(route: APIRoute) -> str:
    """Return the name of an operation in the OpenAPI document."""
    tag = str(route.tags[0]).replace(" ", "_")
    return f"{tag}_{route.name}"


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - it is registered for this class
    body = getattr(request.scope.get("route"), "body_field", None)
    shape = None if body is None else body.field_info.annotation
    mistakes = wire_mistakes(error.errors(), shape)
    return JSONResponse({"detail": bounded_detail(mistakes)}, 422)


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
        for routes in _ROUTERS
        for route in routes.router.routes
        if isinstance(route, APIRoute) and route.matches(request.scope)[0] is not Match.NONE
    ]
    return {
        method for route in routes if route.path == routes[0].path for method in route.methods or ()
    }


async def _not_storable(_: Request, error: Exception) -> Response:
    """Refuse what PostgreSQL has no place for (SQLSTATE 22: the character NUL in a text)."""
    state = str(getattr(getattr(error, "orig", None), "sqlstate", None) or "")
    if not state.startswith("22"):
        raise error
    detail = "a value of the request cannot be stored, such as a text with the character NUL"
    return JSONResponse(
        {"detail": [{"loc": ["body"], "msg": detail, "type": "value_not_storable"}]}, 422
    )


async def _damaged(_: Request, error: Exception) -> Response:
    detail = f"{error}. Restore it from a backup, or write it again"
    return JSONResponse({"detail": bounded_detail(detail)}, 409)


async def _unavailable(_: Request, error: Exception) -> Response:
    part = "the object store" if isinstance(error, StoreError) else "the database"
    return JSONResponse({"detail": f"{part} does not answer; try again"}, 503, _RETRY_AFTER)

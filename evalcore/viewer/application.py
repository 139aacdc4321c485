"""The viewer as an application of its own, and as pages of another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from starlette.exceptions import HTTPException

from evalcore.errors import (
    DamagedRunError,
    EvalError,
    ObjectNotFoundError,
    RunNotFoundError,
    StoreError,
    UsageError,
)
from evalcore.viewer.fault_pages import FaultPages
from evalcore.viewer.head_requests import HeadRequests
from evalcore.viewer.headers import PageHeaders
from evalcore.viewer.preparations import PreparingError
from evalcore.viewer.rendering import render
from evalcore.viewer.routes import (
    annotate,
    assertions,
    cases,
    compare,
    datasets,
    live,
    runs,
    static,
    suites,
    trends,
    whole_texts,
)
from evalcore.viewer.site import CurrentSite, Site, site_of
from evalcore.wording import shorten

_LONGEST_INPUT: Final = 100
_LONGEST_MESSAGE: Final = 2_000
# Each module of pages has a `router`.
PAGES = (suites, trends, runs, live, assertions, cases, compare, annotate, datasets, whole_texts)


def create_viewer(
    site: Site, *, guard: Dependency | None = None, open_to: APIRouter | None = None
) -> FastAPI:
    """Return an application that has the viewer's pages and nothing else.

    `guard` is asked before each page is; it may give the request a site of its own
    (`request.state.site`). The routes of `open_to` and the static files are not guarded.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        site.start()
        try:
            yield
        finally:
            site.close()

    application = FastAPI(
        lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    application.state.site = site
    # The first one is the innermost.
    application.add_middleware(FaultPages)
    application.add_middleware(PageHeaders, prefix=site.prefix)
    application.add_middleware(HeadRequests)
    guards = [*([] if guard is None else [guard]), Depends(require_store)]
    for pages in PAGES:
        application.include_router(pages.router, prefix=site.prefix, dependencies=guards)
    for router in (static.router, *([] if open_to is None else [open_to])):
        application.include_router(router, prefix=site.prefix)
    application.add_exception_handler(PreparingError, show_preparation)
    application.add_exception_handler(EvalError, show_failure)
    application.add_exception_handler(HTTPException, show_failure)
    application.add_exception_handler(RequestValidationError, show_failure)
    return application


def require_store(site: CurrentSite) -> None:
    """Let a page be shown if its store is there; raise `StoreError`."""
    site.check.require()


async def show_preparation(request: Request, error: Exception) -> Response:
    """Return the page that says what is being prepared; the browser asks again by itself."""
    site = await site_of(request)
    page = render(request, site, "preparing.html.j2", status=202, subject=str(error))
    # Without its own address a page with a fragment would only be scrolled to it.
    path, query = request.scope["raw_path"], request.scope["query_string"]
    address = path.partition(b"?")[0] + (b"?" + query if query else b"")
    page.headers["Refresh"] = f"1; url={address.decode('latin-1')}"
    return page


async def show_failure(request: Request, error: Exception) -> Response:
    """Return the page that says what is wrong and what would work."""
    status = _status_of(error)
    if isinstance(error, RequestValidationError):
        message = "\n".join(map(_mistake, error.errors()))
    elif isinstance(error, HTTPException):
        is_unnamed = status == 404 and error.detail == HTTPStatus.NOT_FOUND.phrase
        message = "There is no such page." if is_unnamed else str(error.detail)
    else:
        message = str(error)
    return render(
        request,
        await site_of(request),
        "failure.html.j2",
        status=status,
        title="Not found" if status == 404 else "This page cannot be shown",
        message=shorten(message, _LONGEST_MESSAGE),
    )


def _mistake(mistake: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in mistake["loc"][1:])
    return f"{name}={shorten(str(mistake['input']), _LONGEST_INPUT)!r}: {mistake['msg']}"


def _status_of(error: Exception) -> int:
    match error:
        case HTTPException():
            return error.status_code
        case RunNotFoundError() | ObjectNotFoundError():
            return 404
        case RequestValidationError():
            return 422
        case UsageError():
            return 400
        case DamagedRunError():
            return 409
        case StoreError():
            return 503
        case _:
            return 409

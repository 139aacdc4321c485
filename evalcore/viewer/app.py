"""The viewer as an application of its own, and as pages of another one."""

from __future__ import annotations

import ctypes
import errno
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends as Dependency
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from evalcore.errors import (
    DamagedRunError,
    EvalError,
    ObjectNotFoundError,
    RunNotFoundError,
    StoreError,
    UsageError,
)
from evalcore.redaction.redactor import cover_exception
from evalcore.sql.connection import BoundedConnection
from evalcore.storage.store import ObjectStore
from evalcore.viewer import rendering
from evalcore.viewer.rendering import render
from evalcore.viewer.routes import annotate, cases, compare, datasets, runs, suites
from evalcore.viewer.security import add_headers, require_own_page
from evalcore.viewer.shelf import PreparingError
from evalcore.viewer.site import CurrentSite, Site, site_of
from evalcore.wording import shorten

_LOG: Final = logging.getLogger("evalcore.viewer")


_LONGEST_INPUT: Final = 100
_LONGEST_MESSAGE: Final = 2_000
# Each module of pages has a `router`.
PAGES = (suites, runs, cases, compare, annotate, datasets)


def create_viewer(
    site: Site, *, guard: Dependency | None = None, open_to: APIRouter | None = None
) -> FastAPI:
    """Return an application that has the viewer's pages and nothing else.

    `guard` is asked before each page is. The routes of `open_to` and the static files are not
    guarded.
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
    application.middleware("http")(protect)
    guards = [
        *([] if guard is None else [guard]),
        Depends(require_own_page),
        Depends(require_store),
    ]
    for pages in PAGES:
        application.include_router(pages.router, prefix=site.prefix, dependencies=guards)
    for router in (rendering.router, *([] if open_to is None else [open_to])):
        application.include_router(router, prefix=site.prefix)
    application.add_exception_handler(PreparingError, show_preparation)
    application.add_exception_handler(EvalError, show_failure)
    application.add_exception_handler(HTTPException, show_failure)
    application.add_exception_handler(RequestValidationError, show_failure)
    return application


async def protect(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answer with the headers of every page; of an unexpected fault the reason is only logged."""
    try:
        return add_headers(await answer(request))
    # Every fault of ours: the browser gets a page, the log the reason.
    except Exception as error:  # noqa: BLE001 - the page of a fault
        cover_exception(error)
        _LOG.exception("%s %s: unexpected fault", request.method, request.url.path)
        page = render(
            request,
            await site_of(request),
            "failure.html.j2",
            status=500,
            title="This page has a fault",
            message=f"{type(error).__name__}: the reason stands in the log of the server.",
        )
        return add_headers(page)


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


_HOST: Final = "127.0.0.1"
# A name that is rebound to this machine would let another site's page read this one.
_HOSTS: Final = ("127.0.0.1", "localhost")
_TABLES_MB: Final = 160
_M_ARENA_MAX: Final = -8


def serve_viewer(store: ObjectStore, port: int, announce: Callable[[str], None]) -> None:
    """Serve the pages on loopback; `announce` is called with their address once it answers.

    Port 0 takes any free one. Raises `UsageError` if the port is taken.
    """
    _bound_memory()
    site = Site(store)
    application = create_viewer(site)
    application.add_middleware(TrustedHostMiddleware, allowed_hosts=list(_HOSTS))
    listening = listen(_HOST, port)
    listening.listen()
    announce(f"http://{_HOST}:{listening.getsockname()[1]}/")
    config = uvicorn.Config(
        application, log_level="warning", access_log=False, timeout_graceful_shutdown=2
    )
    uvicorn.Server(config).run(sockets=[listening])


def _bound_memory() -> None:
    """Let tables beyond 160 MB be spilled, and threads share what they have freed."""
    BoundedConnection.usual_mb = _TABLES_MB
    if sys.platform == "linux":
        with suppress(AttributeError):  # only glibc keeps what is freed for each thread
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, before all else; raise `UsageError` if it cannot be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends at once (TCP_NODELAY) on sockets that name their protocol only.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is taken; choose another by --port") from error
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return listening

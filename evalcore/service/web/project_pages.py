"""The viewer's pages as an application at `/ui`: who may look, and at which runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple
from urllib.parse import quote

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalcore.errors import StoreError
from evalcore.service.access.audit import note_write
from evalcore.service.access.tokens import Caller
from evalcore.service.access.tokens import Scope as TokenScope
from evalcore.service.database.tables import WorkflowRow
from evalcore.service.failure import OUTAGES, ServiceError
from evalcore.service.parts import Parts
from evalcore.service.web import sign_in
from evalcore.service.web.project_store import ProjectStore
from evalcore.service.web.sign_in import COOKIE, PREFIX, SIGN_IN, refuse_other_sites
from evalcore.viewer.app import create_viewer, show_failure
from evalcore.viewer.rendering import render
from evalcore.viewer.site import Site

_READS: Final = frozenset({"GET", "HEAD"})
# Each holds some opened runs.
_MOST_SITES: Final = 16


class ProjectPages:
    """The application, and the sites of the projects whose people have looked last."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._sites: OrderedDict[str, tuple[Site, ProjectStore]] = OrderedDict()
        self._lock = threading.Lock()
        self.application = create_viewer(
            self._site(ProjectStore(parts.store)),
            guard=Depends(self._admit),
            open_to=sign_in.router,
        )
        self.application.state.parts = parts
        self.application.add_middleware(_AuditedWrites, parts=parts)
        self.application.add_exception_handler(ServiceError, _refused)
        for outage in OUTAGES:
            if outage is not StoreError:  # whose pages say more
                self.application.add_exception_handler(outage, _unavailable)

    def close(self) -> None:
        """Close all sites."""
        with self._lock:
            sites, self._sites = list(self._sites.values()), OrderedDict()
        for site, _ in sites:
            site.close()

    async def _admit(self, request: Request) -> None:
        """Find out who asks, and give the request the site of their project.

        Raises `ServiceError` 401, 403 or 429.
        """
        writes = request.method not in _READS
        if writes:
            refuse_other_sites(request)
        caller = await self._caller(request)
        self._parts.rates.spend(caller.token_id or "")
        request.state.caller = caller
        caller.require(TokenScope.EVALS if writes else TokenScope.READ)
        request.state.site = await self._site_of(caller)

    async def _caller(self, request: Request) -> Caller:
        if self._parts.open_to is not None:
            return self._parts.open_to
        token = request.cookies.get(COOKIE)
        if not token:
            raise ServiceError(401, "sign in with a token of this service")
        return await self._parts.tokens.check(token)

    async def _site_of(self, caller: Caller) -> Site:
        """Return the site of a project; it shows the workflows that the project has now."""
        async with self._parts.database.reading() as session:
            query = select(WorkflowRow.id).where(WorkflowRow.project_id == caller.project_id)
            workflows = [*(await session.scalars(query))]
        closed = None
        with self._lock:
            if caller.project_id not in self._sites:
                store = ProjectStore(self._parts.store)
                self._sites[caller.project_id] = self._site(store), store
                if len(self._sites) > _MOST_SITES:
                    closed = self._sites.popitem(last=False)[1][0]
            self._sites.move_to_end(caller.project_id)
            site, store = self._sites[caller.project_id]
        store.show_suites(workflows)
        if closed is not None:
            threading.Thread(target=closed.close, name="viewer-close", daemon=True).start()
        return site

    def _site(self, store: ProjectStore) -> Site:
        signs_out = self._parts.open_to is None
        # A command for the whole store is not a project's to start.
        return Site(
            store,
            PREFIX,
            self._parts.store,
            name="",
            signs_out=signs_out,
            regrades_runs=False,
        )


class PagesRoute(BaseRoute):
    """Everything at and below `/ui`, as one route of the service."""

    def __init__(self, pages: FastAPI) -> None:
        self.application = pages

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Take each HTTP request of the pages."""
        path = str(scope.get("path"))
        is_page = path == PREFIX or path.startswith(f"{PREFIX}/")
        return (Match.FULL if scope["type"] == "http" and is_page else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["path"] == PREFIX:
            await RedirectResponse(f"{PREFIX}/", 308)(scope, receive, send)
            return
        try:
            await self.application(scope, receive, send)
        finally:
            # For the request log and the metrics.
            template = getattr(scope.get("route"), "path", "")
            scope["route"] = _PageTemplate(f"{PREFIX}/{template.removeprefix(PREFIX).lstrip('/')}")


class _PageTemplate(NamedTuple):
    """What the request log calls a page."""

    path: str


class _AuditedWrites:
    """ASGI middleware that notes who wrote what, as the REST routes do."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app, self._parts = app, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; note it once it is answered."""
        status = 500

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answer)
        finally:
            caller = scope.get("state", {}).get("caller")
            if caller is not None and scope["method"] not in _READS:
                await note_write(self._parts.database, caller, Request(scope), status)


async def _refused(request: Request, error: Exception) -> Response:
    """Lead a browser without a valid token to the form; show every other refusal as a page."""
    assert isinstance(error, ServiceError)  # noqa: S101 - it is registered for this class
    is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if error.status == 401 and is_page:
        address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{SIGN_IN}?after={quote(address, safe='')}", 303)
    return await show_failure(request, error)


async def _unavailable(request: Request, _: Exception) -> Response:
    return render(
        request,
        request.app.state.site,
        "failure.html.j2",
        status=503,
        title="The service cannot answer now",
        message="The database does not answer. Try again.",
    )

"""The viewer's pages at `/ui`: who may look, and at which runs; signing in with a token."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.service.auth import Caller, note_write, refuse_foreign_pages
from evalcore.service.auth import Scope as TokenScope
from evalcore.service.context import Parts
from evalcore.service.errors import OUTAGES, ServiceError
from evalcore.service.tables import WorkflowRow
from evalcore.storage.layout import NameKey, suite_key
from evalcore.storage.store import ObjectInfo, ObjectStore, StoredObject
from evalcore.viewer.app import create_viewer, show_failure
from evalcore.viewer.rendering import render
from evalcore.viewer.site import CurrentSite, Site

# Below these a suite's objects stand in a folder with the key of its name.
_OF_SUITES: Final = frozenset({"runs", "annotations", "baselines"})
# By the digest of their content, which only those learn who see a run that names it.
_BY_CONTENT: Final = frozenset({"blobs", "recordings"})


class ProjectStore(ObjectStore):
    """A store as a project sees it; all else does not exist in it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._suites: frozenset[NameKey] = frozenset()

    def show_suites(self, names: Collection[str]) -> None:
        """Show the suites of these names, and no others from now on."""
        self._suites = frozenset(map(suite_key, names))

    @property
    def url(self) -> str:
        """What messages name instead of the store's address, which is not the project's to know."""
        return "this service"

    @property
    def is_remote(self) -> bool:
        """What the store itself says."""
        return self._store.is_remote

    def get(self, key: str) -> StoredObject:
        """Return the object; raise `ObjectNotFoundError` for one of another project."""
        if not self._is_readable(key):
            raise ObjectNotFoundError(f"{key} does not exist")
        return self._store.get(key)

    def exists(self, key: str) -> bool:
        """Whether there is such an object of this project."""
        return self._is_readable(key) and self._store.exists(key)

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        """Write an object of an own suite; raise `StoreError` for any other."""
        return self._store.put(self._own(key), data)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        """Write an object of an own suite, or by its content, unless it exists."""
        if key.partition("/")[0] not in _BY_CONTENT:
            self._own(key)
        return self._store.put_if_absent(key, data)

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace an object of an own suite if its ETag is still `etag`."""
        return self._store.compare_and_swap(self._own(key), data, etag)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects of own suites; those of one suite are listed alone."""
        if self._is_own(prefix):
            yield from self._store.list(prefix)
            return
        root = prefix.partition("/")[0]
        if root in _OF_SUITES and prefix == f"{root}/":
            for suite in sorted(self._suites):
                yield from self._store.list(f"{prefix}{suite}/")

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the folders of own suites; below `runs/` these suites' keys."""
        if self._is_own(prefix):
            yield from self._store.list_folders(prefix)
        elif prefix.removesuffix("/") in _OF_SUITES:
            yield from (name for name in self._store.list_folders(prefix) if name in self._suites)

    def delete(self, key: str) -> None:
        """Remove an object of an own suite; raise `StoreError` for any other."""
        self._store.delete(self._own(key))

    def presign(self, key: str, *, expires_s: int = 3600) -> str:  # noqa: ARG002
        """Refuse: an address of the store would outlive the token that it was made for."""
        raise StoreError(f"{key} is read through this service only")

    def local_path(self, key: str) -> Path | None:
        """Return the file of a readable object; None for any other."""
        return self._store.local_path(key) if self._is_readable(key) else None

    def probe_conditional_writes(self) -> bool:
        """Say what the store itself does."""
        return self._store.probe_conditional_writes()

    def _is_own(self, key: str) -> bool:
        """Whether a key or prefix stands in the folder of an own suite."""
        root, _, rest = key.partition("/")
        suite, separator, _ = rest.partition("/")
        return root in _OF_SUITES and bool(separator) and suite in self._suites

    def _is_readable(self, key: str) -> bool:
        return self._is_own(key) or key.partition("/")[0] in _BY_CONTENT

    def _own(self, key: str) -> str:
        if not self._is_own(key):
            raise StoreError(f"{key} is not of this project")
        return key


PREFIX: Final = "/ui"
COOKIE: Final = "evalcore_token"
SIGN_IN: Final = f"{PREFIX}/sign-in"
_MOST_BYTES: Final = 16 * 1024

router = APIRouter(include_in_schema=False)


@router.get("/sign-in")
async def sign_in_form(request: Request, site: CurrentSite, after: str = "") -> Response:
    """Show the form that takes a token; `after` is the page that is shown then."""
    return render(request, site, "sign_in.html.j2", after=own_page(after), message=None)


@router.post("/sign-in")
async def sign_in(request: Request, site: CurrentSite) -> Response:
    """Check a token and keep it in the cookie; show the form again for one that is wrong."""
    refuse_other_sites(request)
    parts: Parts = request.app.state.parts
    client = request.client.host if request.client is not None else ""
    parts.rates.spend(f"sign-in {client}")
    fields = parse_qs((await _body(request)).decode("utf-8", "replace"), max_num_fields=10)
    token, after = (fields.get(name, [""])[0].strip() for name in ("token", "after"))
    try:
        await parts.tokens.check(token)
    except ServiceError as error:
        message = str(error.detail)
        values = {"after": own_page(after), "message": message}
        return render(request, site, "sign_in.html.j2", status=error.status, **values)
    answer = RedirectResponse(own_page(after), 303)
    answer.set_cookie(
        COOKIE,
        token,
        path=PREFIX,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/sign-out")
async def sign_out(request: Request) -> Response:
    """Forget the token of this browser."""
    refuse_other_sites(request)
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(COOKIE, path=PREFIX, httponly=True, samesite="strict")
    return answer


def own_page(address: str) -> str:
    """Return the address if it is a page of these, else the first page."""
    is_own = address.startswith(f"{PREFIX}/") and "\\" not in address and address.isprintable()
    return address if is_own and not address.startswith(SIGN_IN) else f"{PREFIX}/"


def refuse_other_sites(request: Request) -> None:
    """Raise `ServiceError` 403 for a request that a page of another origin makes."""
    refuse_foreign_pages(request)
    # Browsers that send no `Origin` with a form say here where it comes from.
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise ServiceError(403, "requests of web pages of other origins are refused")


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise ServiceError(413, f"the form is larger than {_MOST_BYTES} bytes")
    return body


_READS: Final = frozenset({"GET"})
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
            open_to=router,
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

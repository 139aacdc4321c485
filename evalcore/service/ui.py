"""The viewer at `/ui`: its pages behind a guard, and signing in with a token.

The cookie holds the token for this browser: no script reads it, no other site's request carries it,
and only `/ui` takes it. A token never stands in an address.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Form, Request, Response
from fastapi.responses import RedirectResponse
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from evalcore.errors import StoreError
from evalcore.service.auth import Scope as TokenScope
from evalcore.service.context import Context
from evalcore.service.errors import OUTAGES, ServiceError
from evalcore.service.requests import BoundedRoute
from evalcore.viewer.app import create_viewer, show_failure
from evalcore.viewer.rendering import render
from evalcore.viewer.security import FormText, require_own_page
from evalcore.viewer.site import CurrentSite, Site

PREFIX: Final = "/ui"
COOKIE: Final = "evalcore_token"
SIGN_IN: Final = f"{PREFIX}/sign-in"

router = APIRouter(
    include_in_schema=False, route_class=BoundedRoute, dependencies=[Depends(require_own_page)]
)


@router.get("/sign-in")
async def sign_in_form(request: Request, site: CurrentSite, after: str = "") -> Response:
    """Show the form that takes a token; `after` is the page that is shown then."""
    return render(request, site, "sign_in.html.j2", after=own_page(after), message=None)


@router.post("/sign-in")
async def sign_in(
    request: Request,
    site: CurrentSite,
    token: Annotated[FormText, Form()] = "",
    after: Annotated[FormText, Form()] = "",
) -> Response:
    """Check a token and keep it in the cookie; show the form again for one that is wrong."""
    context: Context = request.app.state.context
    client = request.client.host if request.client is not None else ""
    context.rates.spend(f"sign-in {client}")
    token, after = token.strip(), own_page(after.strip())
    try:
        await context.tokens.check(token)
    except ServiceError as error:
        values = {"after": after, "message": str(error.detail)}
        return render(request, site, "sign_in.html.j2", status=error.status, **values)
    answer = RedirectResponse(after, 303)
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, token, path=PREFIX, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/sign-out")
async def sign_out() -> Response:
    """Forget the token of this browser."""
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(COOKIE, path=PREFIX, httponly=True, samesite="strict")
    return answer


def own_page(address: str) -> str:
    """Return the address if it is a page of these, else the first page."""
    is_own = address.startswith(f"{PREFIX}/") and "\\" not in address and address.isprintable()
    return address if is_own and not address.startswith(SIGN_IN) else f"{PREFIX}/"


def create_pages(context: Context, site: Site) -> FastAPI:
    """Return the viewer's application, which asks who looks before each page."""

    async def admit(request: Request) -> None:
        caller = context.open_to
        if caller is None:
            token = request.cookies.get(COOKIE)
            if not token:
                raise ServiceError(401, "sign in with a token of this service")
            caller = await context.tokens.check(token)
        context.rates.spend(caller.token_id or "")
        request.state.caller = caller
        caller.require(TokenScope.READ if request.method == "GET" else TokenScope.EVALS)

    pages = create_viewer(site, guard=Depends(admit), open_to=router)
    pages.state.context = context
    pages.add_exception_handler(ServiceError, _refused)
    for outage in OUTAGES:
        if outage is not StoreError:  # whose pages say more
            pages.add_exception_handler(outage, _unavailable)
    return pages


def open_site(context: Context) -> Site:
    """Return the viewer over the service's store."""
    # A command for the whole store is not started by a page of the service.
    return Site(context.store, PREFIX, signs_out=context.open_to is None, regrades_runs=False)


class PagesRoute(BaseRoute):
    """Everything at and below `/ui`, as one route of the service."""

    def __init__(self, pages: FastAPI) -> None:
        self._pages = pages

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
            await self._pages(scope, receive, send)
        finally:
            # For the request log and the metrics.
            template = getattr(scope.get("route"), "path", "")
            scope["route"] = _PageTemplate(f"{PREFIX}/{template.removeprefix(PREFIX).lstrip('/')}")


class _PageTemplate(NamedTuple):
    """What the request log calls a page."""

    path: str


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

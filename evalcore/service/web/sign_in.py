"""Signing in with a token: the form, the cookie, signing out.

The cookie holds the token for this browser: no script reads it, no other site's request carries it,
and only `/ui` takes it. A token never stands in an address.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from evalcore.service.access.origins import refuse_foreign_pages
from evalcore.service.failure import ServiceError
from evalcore.service.parts import Parts
from evalcore.viewer.rendering import render
from evalcore.viewer.site import CurrentSite

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

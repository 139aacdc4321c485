"""What protects the pages: headers for the browser, and forms from the same origin only."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import HTTPException, Request, Response
from pydantic import AfterValidator, BeforeValidator

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` the forms of these pages would be sent with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Chosen = Annotated[str | None, BeforeValidator(lambda text: text or None)]
"""A choice in an address; an empty one chooses nothing."""
FormText = Annotated[str, AfterValidator(lambda text: text.replace("\r\n", "\n"))]
"""A field of a form; its line ends are `\\n`."""


def add_headers(response: Response) -> Response:
    """Say to the browser: only this origin's files, no frames, no guessing."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


async def require_own_page(request: Request) -> None:
    """Raise 403 for a form that no page of this origin sends.

    Browsers say so in `Sec-Fetch-Site`, or with a page's own address in `Origin`; a form that has
    neither header is refused.
    """
    if request.method == "GET":
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_own = site == "same-origin"
    else:
        is_own = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    if not is_own:
        raise HTTPException(
            403,
            "The form was not sent from a page of this site, so nothing was stored. Open the page "
            "here and send it again.",
        )

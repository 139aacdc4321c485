"""What protects the pages: headers for the browser, and forms from the same origin only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Depends, HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class PageHeaders:
    """ASGI middleware that adds the headers to the pages below a prefix."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; add the headers to its answer."""
        if scope["type"] != "http" or not str(scope["path"]).startswith(self._prefix):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


_MOST_BYTES: Final = 4 * 1024 * 1024
_MOST_FIELDS: Final = 2_000
_FORM_TYPE: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class PostedForm:
    """The fields of a form, in the order of the page; line ends are `\\n`."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Return the field's first value; empty without one."""
        values = self.fields.get(name)
        return values[0] if values else ""

    def texts(self, name: str) -> Sequence[str]:
        """Return all values of a field."""
        return self.fields.get(name, ())

    def is_checked(self, name: str) -> bool:
        """Whether a box is checked."""
        return bool(self.text(name))


def require_same_origin(request: Request) -> None:
    """Raise 403 unless a page of this origin makes the request.

    Browsers say so in `Sec-Fetch-Site`, or with a page's own address in `Origin`; a request that
    has neither header is refused.
    """
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


async def read_form(request: Request) -> PostedForm:
    """Return the form of a request; raises 403, 413 or 415."""
    require_same_origin(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
        raise HTTPException(415, f"A form is sent as {_FORM_TYPE}.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"A form may have {_MOST_BYTES // 2**20} MiB.")
    try:
        fields = parse_qs(
            body.decode("ascii", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=_MOST_FIELDS,
        )
    except ValueError as error:
        raise HTTPException(413, f"A form may have {_MOST_FIELDS:,} fields.") from error
    return PostedForm(
        {name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()}
    )


Posted = Annotated[PostedForm, Depends(read_form)]

"""What every route does with a request: read its body strictly, know its caller, note writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import jiter
import orjson
from fastapi import Depends, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BeforeValidator

from evalcore.formats.text.documents import too_large_number
from evalcore.service.access.audit import note_write
from evalcore.service.access.tokens import Caller, Scope
from evalcore.service.database.outages import DatabaseOutageError
from evalcore.service.failure import ServiceError, mistake
from evalcore.service.pages import PageRequest
from evalcore.service.parts import Parts

LOG = logging.getLogger("evalcore.service.audit")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class StrictRequest(Request):
    """A request whose body is JSON as RFC 8259 has it, and not too large."""

    async def body(self) -> bytes:
        """Return the body; raise `ServiceError` 413 once it is too large."""
        if not hasattr(self, "_body"):
            most = parts_of(self).max_body_bytes
            chunks, size = [], 0
            async for chunk in self.stream():
                size += len(chunk)
                if size > most:
                    raise ServiceError(413, f"the body is larger than {most} bytes")
                chunks.append(chunk)
            self._body = b"".join(chunks)
        return self._body

    async def json(self) -> Any:
        """Return the body's value: no key twice, no NaN, no lone surrogates, not too deep,
        no integer beyond 64 bits."""
        body = await self.body()
        try:
            value = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
            orjson.dumps(value)  # integers of more than 64 bits cannot be stored
        except (ValueError, TypeError) as error:
            raise mistake(["body"], f"the body is not JSON: {error}", "json_invalid") from error
        too_large = too_large_number(body, value)
        if too_large is not None:
            raise mistake(["body"], f"the body has a number that is too large: {too_large}")
        return value


class StrictRoute(APIRoute):
    """A route that reads strictly, and that notes who wrote what."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, given a `StrictRequest`."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            status = 500
            try:
                response = await handle(strict)
                status = response.status_code
                return response
            except ServiceError as error:
                status = error.status
                raise
            finally:
                caller = getattr(strict.state, "caller", None)
                if request.method not in _READS and caller is not None:
                    await _audit(parts_of(request), caller, request, status)

        return strictly


async def _audit(parts: Parts, caller: Caller, request: Request, status: int) -> None:
    try:
        await note_write(parts.database, caller, request, status)
    except DatabaseOutageError:
        # The answer has to say what was done, so the entry goes to the log instead.
        LOG.exception(
            "audit: %s %s by %s: %s", request.method, request.url.path, caller.token_id, status
        )


def parts_of(request: Request) -> Parts:
    """Return the parts of the service that answers a request."""
    parts: Parts = request.app.state.parts
    return parts


async def authenticated(request: Request) -> Caller:
    """Return whose request it is. Raises `ServiceError` 401, 403 or 429."""
    parts = parts_of(request)
    written = request.headers.get("authorization")
    if written is None:
        if parts.open_to is None:
            raise ServiceError(401, "a bearer token is required: 'Authorization: Bearer evc_…'")
        caller = parts.open_to
    else:
        scheme, _, token = written.partition(" ")
        if scheme.lower() != "bearer":
            raise ServiceError(401, "expected 'Authorization: Bearer evc_…'")
        caller = await parts.tokens.check(token.strip())
    parts.rates.spend(caller.token_id or "")
    request.state.caller = caller
    caller.require(Scope.READ if request.method in _READS else Scope.WRITE)
    return caller


def _page(
    limit: Annotated[int, Query(ge=1, le=100, description="How many rows at the most.")] = 20,
    before: Annotated[str | None, Query(description="Rows newer than the one of this id.")] = None,
    after: Annotated[str | None, Query(description="Rows older than the one of this id.")] = None,
) -> PageRequest:
    return PageRequest(limit, before, after)


CurrentParts = Annotated[Parts, Depends(parts_of)]
CurrentCaller = Annotated[Caller, Depends(authenticated)]
RequestedPage = Annotated[PageRequest, Depends(_page)]


def _listed(value: Any) -> Any:
    return (
        [part for text in value for part in text.split(",")] if isinstance(value, list) else value
    )


TextList = Annotated[list[str] | None, Query(), BeforeValidator(_listed)]

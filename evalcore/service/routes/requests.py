"""What every route does with a request: read its body strictly, know its caller, note writes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, get_args, get_origin

import jiter
import orjson
from fastapi import Depends, Query, Request, Response, Security
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException

from evalcore.formats.documents import too_large_number
from evalcore.service.access.audit import note_write
from evalcore.service.access.tokens import Caller, Scope
from evalcore.service.database.outages import DatabaseOutageError
from evalcore.service.failure import OUTAGES, ServiceError, mistake, refuse_nul
from evalcore.service.mistakes import repeated_parameter, unknown_parameter
from evalcore.service.pages import PageRequest
from evalcore.service.parts import Parts
from evalcore.service.payloads import DamagedPayloadError

LOG = logging.getLogger("evalcore.service.audit")
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM_BYTES: Final = 64 * 1024


class StrictRequest(Request):
    """A request whose body is JSON as RFC 8259 has it, and not too large."""

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in parts; raise `ServiceError` 413 once it is too large."""
        most = self.max_bytes
        declared = self.headers.get("content-length", "")
        size = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
        if size <= most:
            size = 0
            async for chunk in super().stream():
                size += len(chunk)
                if size > most:
                    break
                yield chunk
        if size > most:
            raise ServiceError(413, f"the body is larger than {most} bytes")

    @property
    def max_bytes(self) -> int:
        """How large the body may be; the parts of a form have headers of their own."""
        is_form = self.headers.get("content-type", "").startswith("multipart/form-data")
        return parts_of(self).max_body_bytes + (_FORM_BYTES if is_form else 0)

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
        if rb"\u0000" in body:
            refuse_nul(value, ["body"])
        return value


class StrictRoute(APIRoute):
    """A route that reads strictly, and that notes who wrote what."""

    write_scope: ClassVar[Scope] = Scope.EVALS
    """What a token needs for methods that change something."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, given a `StrictRequest`."""
        handle = super().get_route_handler()
        parameters = dict(_query_parameters(self.dependant))

        async def strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            refuse_nul(request.path_params, ["path"])
            refuse_nul(dict(request.query_params), ["query"])
            status = 500
            try:
                # Before the body is read: without a token nothing of it is looked at.
                await authenticated(strict, self.write_scope)
                _refuse_query(strict, parameters)
                response = await handle(strict)
                status = response.status_code
                return response
            except HTTPException as error:
                status = error.status_code
                raise
            except RequestValidationError:
                status = 422
                raise
            except DamagedPayloadError:
                status = 409
                raise
            except OUTAGES:
                status = 503
                raise
            finally:
                caller = getattr(strict.state, "caller", None)
                if request.method not in _READS and caller is not None:
                    await _audit(parts_of(request), caller, request, status)

        return strictly


def _query_parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the names of the query parameters that a route reads, and whether each is a list."""
    for parameter in dependant.query_params:
        annotation = parameter.field_info.annotation
        members = (annotation, *get_args(annotation))
        yield parameter.alias, any(get_origin(member) is list for member in members)
    for inner in dependant.dependencies:
        yield from _query_parameters(inner)


def _refuse_query(request: Request, parameters: Mapping[str, bool]) -> None:
    """Raise `ServiceError` 422 for parameters that the route does not read, or not twice.

    A filter that is mistyped must not return everything, and none of two values stands for both.
    """
    counts = Counter(name for name, _ in request.query_params.multi_items())
    mistakes = [
        repeated_parameter(name) if name in parameters else unknown_parameter(name, [*parameters])
        for name, count in counts.items()
        if name not in parameters or (count > 1 and not parameters[name])
    ]
    if mistakes:
        raise ServiceError(422, mistakes)


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


async def caller_of(parts: Parts, request: Request) -> Caller:
    """Return whose request it is. Raises `ServiceError` 401."""
    written = request.headers.get("authorization")
    if written is None:
        if parts.open_to is None:
            raise ServiceError(401, "a bearer token is required: 'Authorization: Bearer evc_…'")
        return parts.open_to
    scheme, _, token = written.partition(" ")
    if scheme.lower() != "bearer":
        raise ServiceError(401, "expected 'Authorization: Bearer evc_…'")
    return await parts.tokens.check(token.strip())


class WorkflowsRoute(StrictRoute):
    """A route that changes what code runs."""

    write_scope = Scope.WORKFLOWS


async def authenticated(request: Request, write_scope: Scope) -> Caller:
    """Return whose request it is. Raises `ServiceError` 401, 403 or 429."""
    parts = parts_of(request)
    caller = await caller_of(parts, request)
    parts.rates.spend(caller.token_id or "")
    request.state.caller = caller
    caller.require(Scope.READ if request.method in _READS else write_scope)
    return caller


_BEARER = HTTPBearer(
    scheme_name="token",
    description="A token of `evalcore tokens create`: read, evals, workflows or admin.",
    auto_error=False,
)


# FastAPI calls dependencies that are not coroutines in threads.
async def _parts(request: Request) -> Parts:
    return parts_of(request)


async def _caller(request: Request, _: Annotated[object, Security(_BEARER)]) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _page(
    limit: Annotated[int, Query(ge=1, le=100, description="How many rows at the most.")] = 20,
    before: Annotated[str | None, Query(description="Rows newer than the one of this id.")] = None,
    after: Annotated[str | None, Query(description="Rows older than the one of this id.")] = None,
) -> PageRequest:
    return PageRequest(limit, before, after)


CurrentParts = Annotated[Parts, Depends(_parts)]
CurrentCaller = Annotated[Caller, Depends(_caller)]
RequestedPage = Annotated[PageRequest, Depends(_page)]

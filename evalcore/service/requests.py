"""What every route does with a request: read it strictly, know its caller, read pages of lists."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_args, get_origin

import jiter
import orjson
from fastapi import Depends, Query, Request, Response, Security
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.exceptions import HTTPException

from evalcore.formats.documents import too_large_number
from evalcore.service.auth import Caller, Scope, note_write
from evalcore.service.context import DamagedPayloadError, Parts, Payloads, ReadValue, StoredValue
from evalcore.service.db import DatabaseOutageError, select_rows
from evalcore.service.errors import (
    OUTAGES,
    ServiceError,
    mistake,
    refuse_nul,
    repeated_parameter,
    unknown_parameter,
)
from evalcore.service.models import ListMetadata

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which rows: at most `limit`, older than the row `after` or newer than the row `before`."""

    limit: int = 20
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class RowPage:
    """The rows of a page and its cursors."""

    rows: Sequence[Any]
    metadata: ListMetadata
    backwards: bool = False

    def nearest(self, count: int) -> RowPage:
        """Return the page with so many rows only, those next to its cursor; the list goes on."""
        if count >= len(self.rows):
            return self
        if self.backwards:
            rows = self.rows[len(self.rows) - count :]
            metadata = ListMetadata(before=rows[0].id, after=self.metadata.after)
        else:
            rows = self.rows[:count]
            metadata = ListMetadata(before=self.metadata.before, after=rows[-1].id)
        return RowPage(rows, metadata, self.backwards)


async def read_values(
    payloads: Payloads, page: RowPage, stored_of: Callable[[Any], Sequence[StoredValue]]
) -> tuple[RowPage, list[list[ReadValue]]]:
    """Return a page with the values of each of its rows, without the rows that are too many.

    The rows that stay have `PAGE_BYTES` together, or it is one row.
    """
    rows = page.rows[::-1] if page.backwards else page.rows
    values = await payloads.read_rows([stored_of(row) for row in rows])
    return page.nearest(len(values)), values[::-1] if page.backwards else values


async def read_page(
    session: AsyncSession,
    table: Any,
    page: PageRequest,
    scope: Sequence[ColumnElement[bool]],
    where: Sequence[ColumnElement[bool]] = (),
) -> RowPage:
    """Return a page of a table's rows; two queries at most.

    A cursor is the id of a row in `scope`, which rows never leave; any other raises `ServiceError`
    400. It need not fit `where` any more: a run ends and an eval is deleted between two pages.
    """
    if page.before is not None and page.after is not None:
        raise ServiceError(400, "'before' and 'after' exclude each other")
    query = select_rows(table, *scope, *where)
    cursor = page.before or page.after
    if cursor is not None:
        edge = await session.scalar(select(table.number).where(table.id == cursor, *scope))
        if edge is None:
            raise ServiceError(400, f"the cursor '{cursor[:80]}' is not in this list")
        query = query.where(table.number > edge if page.before else table.number < edge)
    backwards = page.before is not None
    order = table.number.asc() if backwards else table.number.desc()
    rows = [*await session.execute(query.order_by(order).limit(page.limit + 1))]
    goes_on = len(rows) > page.limit
    rows = rows[: page.limit]
    if backwards:
        rows.reverse()
    has_newer = goes_on if backwards else page.after is not None
    has_older = True if backwards else goes_on
    metadata = ListMetadata(
        before=rows[0].id if rows and has_newer else None,
        after=rows[-1].id if rows and has_older else None,
    )
    return RowPage(rows, metadata, backwards)


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


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs or results: all that are named have to hold."""

    workflow_id: str | None = None
    eval_id: str | None = None
    target_block_id: str | None = None
    status: Sequence[str] | None = None
    exclude_status: Sequence[str] | None = None
    trigger_type: str | None = None
    from_date: datetime | None = None
    to_date: datetime | None = None

    def lasting_conditions(self, table: Any) -> list[ColumnElement[bool]]:
        """Return the conditions that a run or result meets for good or never; both dates count."""
        named = {
            table.workflow_id: self.workflow_id,
            table.eval_id: self.eval_id,
            table.block_id: self.target_block_id,
            table.trigger: self.trigger_type,
        }
        where = [column == value for column, value in named.items() if value is not None]
        if self.from_date is not None:
            where.append(table.created_at >= self.from_date)
        if self.to_date is not None:
            where.append(table.created_at <= self.to_date)
        return where

    def status_conditions(self, table: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on the status, which changes."""
        where: list[ColumnElement[bool]] = []
        if self.status:
            where.append(table.status.in_(self.status))
        if self.exclude_status:
            where.append(table.status.not_in(self.exclude_status))
        return where

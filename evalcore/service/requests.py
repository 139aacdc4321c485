"""What every route does with a request: read it strictly, know its caller, read pages of lists."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar

import jiter
import orjson
from fastapi import APIRouter, Depends, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer_group

from evalcore.formats.documents import too_large_number
from evalcore.service.auth import Caller, Scope
from evalcore.service.context import Context
from evalcore.service.errors import REFUSALS, ServiceError, mistake
from evalcore.service.models import LifecycleStatus, ListMetadata, TriggerType

Row = TypeVar("Row")
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM_BYTES: Final = 64 * 1024
_BEARER: Final = HTTPBearer(
    scheme_name="token",
    description="A token of `evalcore tokens create`: read, evals, workflows or admin.",
    auto_error=False,
)


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
        context: Context = self.app.state.context
        return context.max_body_bytes + (_FORM_BYTES if is_form else 0)

    async def json(self) -> Any:
        """Return the body's value: no key twice, no NaN, no lone surrogates, not too deep,
        no integer beyond 64 bits."""
        body = await self.body()
        try:
            value = jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError as error:
            raise mistake(["body"], f"the body is not JSON: {error}", "json_invalid") from error
        require_storable(value)
        too_large = too_large_number(body, value)
        if too_large is not None:
            raise mistake(["body"], f"the body has a number that is too large: {too_large}")
        return value


def require_storable(value: Any) -> None:
    """Raise `ServiceError` 422 for integers of more than 64 bits and what else is no JSON."""
    try:
        orjson.dumps(value)
    except (TypeError, RecursionError) as error:
        raise mistake(["body"], f"the body is not JSON: {error}", "json_invalid") from error


class BoundedRoute(APIRoute):
    """A route that reads no more than a body may have."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI, given a `StrictRequest`."""
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            await self.admit(request)
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly

    async def admit(self, request: Request) -> None:
        """Let a request pass, before its body is read."""


class StrictRoute(BoundedRoute):
    """A route that asks for a token before it reads."""

    write_scope: ClassVar[Scope] = Scope.EVALS
    """What a token needs for methods that change something."""

    async def admit(self, request: Request) -> None:
        """Let a request pass whose token has the scope. Raises `ServiceError` 401, 403 or 429."""
        scope = Scope.READ if request.method in _READS else self.write_scope
        await authenticate(request.app.state.context, request, scope)


class WorkflowsRoute(StrictRoute):
    """A route that changes what code runs."""

    write_scope = Scope.WORKFLOWS


def router(prefix: str, tag: str, route_class: type[StrictRoute] = StrictRoute) -> APIRouter:
    """Return a router of a resource, whose routes ask for a token."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=route_class,
        responses=REFUSALS,
        dependencies=[Security(_BEARER)],
    )


async def caller_of(context: Context, request: Request) -> Caller:
    """Return whose request it is. Raises `ServiceError` 401."""
    written = request.headers.get("authorization")
    if written is None:
        if context.open_to is None:
            raise ServiceError(401, "a bearer token is required: 'Authorization: Bearer evc_…'")
        return context.open_to
    scheme, _, token = written.partition(" ")
    if scheme.lower() != "bearer":
        raise ServiceError(401, "expected 'Authorization: Bearer evc_…'")
    return await context.tokens.check(token.strip())


async def authenticate(context: Context, request: Request, scope: Scope) -> None:
    """Let a request pass whose token has the scope. Raises `ServiceError` 401, 403 or 429."""
    caller = await caller_of(context, request)
    context.rates.spend(caller.token_id or "")
    request.state.caller = caller
    caller.require(scope)


# FastAPI calls dependencies that are not coroutines in threads.
async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


CurrentContext = Annotated[Context, Depends(_context)]


def _written_as_date(text: Any) -> Any:
    if isinstance(text, str) and text.lstrip("+-").replace(".", "", 1).isdecimal():
        raise ValueError("expected a date and time of ISO 8601, got a number")
    return text


def _end_of_day(text: Any) -> Any:
    is_day = isinstance(text, str) and len(text) == len("2026-05-18")
    return f"{text}T23:59:59.999999Z" if is_day else text


def _utc(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("the date is out of range in UTC") from None


Moment = Annotated[datetime, BeforeValidator(_written_as_date), AfterValidator(_utc)]
LastMoment = Annotated[Moment, BeforeValidator(_end_of_day)]


class PageQuery(BaseModel):
    """Which rows of a list: at most `limit`, older than `after` or newer than `before`."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=100, description="How many rows at the most.")] = 20
    before: Annotated[str | None, Field(description="Rows newer than the one of this id.")] = None
    after: Annotated[str | None, Field(description="Rows older than the one of this id.")] = None


class RunQuery(PageQuery):
    """Which runs or results: all that are named have to hold."""

    workflow_id: Annotated[str | None, Field(description="Of this workflow.")] = None
    eval_id: Annotated[str | None, Field(description="Of this eval.")] = None
    target_block_id: Annotated[str | None, Field(description="Of this block.")] = None
    status: Annotated[list[LifecycleStatus] | None, Field(description="One of these.")] = None
    exclude_status: Annotated[list[LifecycleStatus] | None, Field(description="None of these.")] = (
        None
    )
    trigger_type: TriggerType | None = None
    from_date: Annotated[Moment | None, Field(description="Created then or later.")] = None
    to_date: Annotated[
        LastMoment | None, Field(description="Created then or before; a day counts as a whole.")
    ] = None

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


@dataclass(frozen=True, slots=True)
class RowPage(Generic[Row]):
    """The rows of a page and its cursors."""

    rows: Sequence[Row]
    metadata: ListMetadata


async def read_page(
    session: AsyncSession,
    table: type[Row],
    page: PageQuery,
    scope: Sequence[ColumnElement[bool]] = (),
    where: Sequence[ColumnElement[bool]] = (),
    *,
    values: bool = False,
) -> RowPage[Row]:
    """Return a page of a table's rows, newest first, with their large `values`; two queries.

    A cursor is the id of a row in `scope`, which rows never leave; any other raises `ServiceError`
    400. It need not fit `where` any more: a run ends and an eval is deleted between two pages.
    """
    columns: Any = table
    if page.before is not None and page.after is not None:
        raise ServiceError(400, "'before' and 'after' exclude each other")
    query = select(table).where(*scope, *where)
    if values:
        query = query.options(undefer_group("values"))
    cursor = page.before or page.after
    if cursor is not None:
        edge = await session.scalar(select(columns.number).where(columns.id == cursor, *scope))
        if edge is None:
            raise ServiceError(400, f"the cursor '{cursor[:80]}' is not in this list")
        query = query.where(columns.number > edge if page.before else columns.number < edge)
    backwards = page.before is not None
    order = columns.number.asc() if backwards else columns.number.desc()
    rows: list[Any] = [*await session.scalars(query.order_by(order).limit(page.limit + 1))]
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
    return RowPage(rows, metadata)


async def find_row(
    session: AsyncSession,
    table: type[Row],
    identifier: str,
    kind: str,
    *,
    locked: bool = False,
    values: bool = False,
) -> Row:
    """Return the row of an id, `locked` to be changed, with its large `values`.

    Raises `ServiceError` 404, also for one that is deleted.
    """
    columns: Any = table
    query = select(table).where(columns.id == identifier)
    if locked:
        query = query.with_for_update()
    if values:
        query = query.options(undefer_group("values"))
    row = await session.scalar(query)
    if row is None or getattr(row, "deleted_at", None) is not None:
        raise ServiceError(404, f"{kind} '{identifier[:80]}' does not exist")
    return row

"""Who may do what: bearer tokens, rates, origins of requests."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import JSONResponse
from sqlalchemy import select

from evalcore.service.db import Database
from evalcore.service.errors import ServiceError
from evalcore.service.tables import Kind, TokenRow, new_id

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as AsgiScope


_PREFIX: Final = "evc"
_SECRET_BYTES: Final = 32
_READ_AGAIN_S: Final = 5.0
_MOST_REMEMBERED: Final = 10_000


class Scope(StrEnum):
    """What a token may do; each scope includes the ones before it.

    `evals`: create evals, upload files, start and cancel runs, annotate. `workflows`: register and
    change workflows, which is running code.
    """

    READ = "read"
    EVALS = "evals"
    WORKFLOWS = "workflows"
    ADMIN = "admin"


_RANK: Final = {scope: rank for rank, scope in enumerate(Scope)}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is, and what it may do."""

    scope: Scope
    token_id: str | None = None

    def require(self, scope: Scope) -> None:
        """Raise `ServiceError` 403 unless the caller has the scope."""
        if _RANK[self.scope] < _RANK[scope]:
            raise ServiceError(403, f"this token has the scope '{self.scope}', not '{scope}'")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token: `secret` is the whole text, shown once and stored nowhere."""

    id: str
    secret: str
    scope: Scope
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class _CheckedToken:
    """A token whose secret fits `secret_hash`; its row is read again after `fresh_until`."""

    caller: Caller
    secret_hash: str
    expires_at: datetime | None
    fresh_until: float


class Tokens:
    """Issues, checks and revokes tokens. `clock` gives seconds, `now` the date."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._clock = clock
        self._now = now
        self._checked: dict[bytes, _CheckedToken] = {}
        self._checking: dict[bytes, asyncio.Task[Caller]] = {}

    async def issue(
        self, name: str, scope: Scope, lifetime: timedelta | None = None
    ) -> IssuedToken:
        """Return a new token."""
        from argon2 import PasswordHasher

        identifier, secret = new_id(Kind.TOKEN), secrets.token_urlsafe(_SECRET_BYTES)
        digest = await asyncio.to_thread(PasswordHasher().hash, secret)
        now = self._now()
        expires = None if lifetime is None else now + lifetime
        async with self._database.transaction() as session:
            row = TokenRow(
                id=identifier,
                created_at=now,
                name=name,
                scopes=scope,
                secret_hash=digest,
                expires_at=expires,
            )
            session.add(row)
        short = identifier.removeprefix(f"{Kind.TOKEN}_")
        return IssuedToken(identifier, f"{_PREFIX}_{short}_{secret}", scope, expires)

    async def check(self, text: str) -> Caller:
        """Return whose token a text is. Raises `ServiceError` 401."""
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        remembered = self._checked.get(key)
        if remembered is not None and self._clock() < remembered.fresh_until:
            self._refuse_expired(remembered.expires_at)
            return remembered.caller
        checking = self._checking.get(key)
        if checking is None:
            # Requests that come at once wait for one check.
            checking = asyncio.create_task(self._check(key, text))
            self._checking[key] = checking
            checking.add_done_callback(lambda _: self._checking.pop(key, None))
        return await asyncio.shield(checking)

    async def _check(self, key: bytes, text: str) -> Caller:
        fresh_until = self._clock() + _READ_AGAIN_S
        try:
            row = await self._verified(self._checked.get(key), text)
        except ServiceError:
            self._checked.pop(key, None)
            raise
        caller = Caller(Scope(row.scopes), row.id)
        if len(self._checked) >= _MOST_REMEMBERED:
            self._checked.clear()
        expires_at = row.expires_at
        self._checked[key] = _CheckedToken(caller, row.secret_hash, expires_at, fresh_until)
        return caller

    async def _verified(self, remembered: _CheckedToken | None, text: str) -> TokenRow:
        """Return the row of a token that may be used; its secret is hashed if it is not known."""
        row, secret = await self._read(text)
        if remembered is None or remembered.secret_hash != row.secret_hash:
            await _verify(row.secret_hash, secret)
        self._refuse_expired(row.expires_at)
        return row

    async def _read(self, text: str) -> tuple[TokenRow, str]:
        """Return the row that a token names, and its secret."""
        prefix, _, rest = text.partition("_")
        short, _, secret = rest.partition("_")
        if prefix != _PREFIX or not secret:
            raise ServiceError(401, "the bearer token is not one of this service")
        async with self._database.reading() as session:
            rows = await session.scalars(
                select(TokenRow).where(TokenRow.id == f"{Kind.TOKEN}_{short}")
            )
            row = rows.first()
        if row is None or row.revoked_at is not None:
            raise ServiceError(401, "the bearer token does not exist or was revoked")
        return row, secret

    def _refuse_expired(self, expires_at: datetime | None) -> None:
        if expires_at is not None and expires_at <= self._now():
            raise ServiceError(401, "the bearer token has expired")

    async def revoke(self, identifier: str) -> None:
        """Revoke a token; raise `ServiceError` 404 if there is none of that id."""
        async with self._database.transaction() as session:
            row = (await session.scalars(select(TokenRow).where(TokenRow.id == identifier))).first()
            if row is None:
                raise ServiceError(404, f"token '{identifier[:80]}' does not exist")
            row.revoked_at = row.revoked_at or self._now()
        self._checked.clear()

    async def list(self) -> list[TokenRow]:
        """Return all tokens, the newest first."""
        async with self._database.reading() as session:
            rows = await session.scalars(select(TokenRow).order_by(TokenRow.number.desc()))
            return [*rows]


async def _verify(secret_hash: str, secret: str) -> None:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        await asyncio.to_thread(PasswordHasher().verify, secret_hash, secret)
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        raise ServiceError(401, "the bearer token does not exist or was revoked") from None


_MOST_BUCKETS = 10_000


class RateLimiter:
    """Allows each key so many requests per second on average, and twice as many at once.

    `per_second` 0 allows any number.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, key: str) -> None:
        """Take one request; raise `ServiceError` 429 if there is none left."""
        if not self._per_second:
            return
        now, most = self._clock(), 2 * self._per_second
        left, since = self._buckets.get(key, (most, now))
        left = min(most, left + (now - since) * self._per_second)
        if left < 1:
            wait_s = ceil((1 - left) / self._per_second)
            message = f"too many requests; try again in {wait_s} s"
            raise ServiceError(429, message, {"Retry-After": str(wait_s)})
        if len(self._buckets) >= _MOST_BUCKETS and key not in self._buckets:
            self._buckets.clear()
        self._buckets[key] = (left - 1, now)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_foreign_pages(request: Request) -> None:
    """Raise `ServiceError` 403 for a request of a web page of another origin."""
    origin = request.headers.get("origin")
    if origin is not None and _netloc(origin) != request.headers.get("host", ""):
        raise ServiceError(403, "requests of web pages of other origins are refused")


def refuse_foreign_hosts(request: Request) -> None:
    """Raise `ServiceError` 403 for a host that is no loopback address.

    A name that is rebound to this machine makes a web page's own origin of it.
    """
    if not is_loopback(_hostname(request.headers.get("host", ""))):
        raise ServiceError(403, "without tokens the header 'Host' has to name a loopback address")


class OpenGuard:
    """ASGI middleware of a service without tokens: no web page can drive or read it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            request = Request(scope)
            try:
                refuse_foreign_hosts(request)
                refuse_foreign_pages(request)
            except ServiceError as error:
                refusal = JSONResponse({"detail": error.detail}, error.status_code)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""

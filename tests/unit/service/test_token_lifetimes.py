"""Tokens: expiry, rotation, revocation, scopes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evalcore.service.auth import Caller, Scope, Tokens
from evalcore.service.db import Database, open_database, upgrade
from evalcore.service.errors import ServiceError

Talk = Callable[["Keys"], Awaitable[None]]


class Keys:
    """Tokens of two replicas on one database, and a clock that stands still."""

    def __init__(self, database: Database) -> None:
        self.seconds = 0.0
        self.now = datetime(2026, 5, 18, tzinfo=UTC)
        self.one, self.two = (
            Tokens(database, lambda: self.seconds, lambda: self.now) for _ in range(2)
        )


@pytest.fixture
def with_keys(tmp_path: Path) -> Callable[[Talk], None]:
    """Return what calls a function with tokens on a new database."""

    async def run(talk: Talk) -> None:
        database = open_database(f"sqlite:///{tmp_path}/tokens.db")
        await upgrade(database)
        try:
            await talk(Keys(database))
        finally:
            await database.close()

    return lambda talk: asyncio.run(run(talk))


async def refused(checking: Awaitable[Any]) -> tuple[int, str]:
    """Return the status and the reason of a refusal."""
    with pytest.raises(ServiceError) as raised:
        await checking
    return raised.value.status, str(raised.value.detail)


def test_a_token_works_until_it_expires(with_keys: Callable[[Talk], None]) -> None:
    async def talk(keys: Keys) -> None:
        issued = await keys.one.issue("nightly", Scope.READ, timedelta(days=1))
        assert issued.expires_at == keys.now + timedelta(days=1)
        keys.now += timedelta(hours=23)
        caller = await keys.one.check(issued.secret)
        assert caller == Caller(Scope.READ, issued.id)
        keys.now += timedelta(hours=1)
        # The replica that has just checked it does not wait for a minute.
        for replica in (keys.one, keys.two):
            refusal = await refused(replica.check(issued.secret))
            assert refusal == (401, "the bearer token has expired")

    with_keys(talk)


def test_a_revoked_token_is_refused_by_every_replica(with_keys: Callable[[Talk], None]) -> None:
    async def talk(keys: Keys) -> None:
        issued = await keys.one.issue("lost", Scope.ADMIN)
        await keys.two.check(issued.secret)
        await keys.one.revoke(issued.id)
        assert (await refused(keys.one.check(issued.secret)))[0] == 401
        keys.seconds = 61
        assert (await refused(keys.two.check(issued.secret)))[0] == 401
        first = (await keys.one.list())[0].revoked_at
        await keys.two.revoke(issued.id)
        assert (await keys.one.list())[0].revoked_at == first
        assert (await refused(keys.one.revoke("tok_absent")))[0] == 404

    with_keys(talk)


def test_only_the_whole_token_is_one(with_keys: Callable[[Talk], None]) -> None:
    async def talk(keys: Keys) -> None:
        one = await keys.one.issue("a", Scope.WORKFLOWS)
        other = await keys.one.issue("b", Scope.ADMIN)
        _, short, secret = one.secret.split("_", 2)
        _, foreign, _ = other.secret.split("_", 2)
        wrong = [
            "", "evc", "evc_", f"evc_{short}", f"evc_{short}_", f"evc_{short}_{secret}x",
            f"evc_{short}_{secret[:-1]}", f"evc_{foreign}_{secret}", f"EVC_{short}_{secret}",
            one.secret.upper(), f"evc_{short}_é\ud800", "evc__" + secret, one.id,
        ]  # fmt: skip
        for text in wrong:
            status, reason = await refused(keys.one.check(text))
            assert status == 401
            assert secret not in reason
        rows = [row for row in await keys.one.list() if row.id == one.id]
        assert secret not in repr([vars(row) for row in rows])

    with_keys(talk)


@pytest.mark.parametrize("scope", Scope)
def test_a_scope_includes_those_before_it(scope: Scope) -> None:
    order = list(Scope)
    for asked in Scope:
        caller = Caller(scope)
        if order.index(asked) <= order.index(scope):
            caller.require(asked)
        else:
            with pytest.raises(ServiceError) as raised:
                caller.require(asked)
            assert raised.value.status == 403

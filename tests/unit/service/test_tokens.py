"""Tokens that a process remembers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import argon2
import pytest

from evalcore.service.auth import Scope, Tokens
from evalcore.service.db import open_database, upgrade
from evalcore.service.errors import ServiceError


class Checks:
    """Counts the checks of argon2, which are made all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        verify = argon2.PasswordHasher.verify

        def counted(hasher: argon2.PasswordHasher, digest: str, secret: str) -> bool:
            self.count += 1
            return verify(hasher, digest, secret)

        monkeypatch.setattr(argon2.PasswordHasher, "verify", counted)


def test_a_token_is_hashed_once_and_its_revocation_is_seen_within_5_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Checks(monkeypatch)
    seconds = 0.0

    async def run() -> None:
        nonlocal seconds
        database = open_database(str(tmp_path / "evalcore.db"))
        await upgrade(database)
        tokens = Tokens(database, lambda: seconds)
        issued = await tokens.issue("test", Scope.READ)
        callers = await asyncio.gather(*(tokens.check(issued.secret) for _ in range(20)))
        assert {caller.token_id for caller in callers} == {issued.id}
        seconds = 6.0
        await tokens.check(issued.secret)
        assert checks.count == 1
        # Another process, such as `evalcore tokens revoke`.
        await Tokens(database).revoke(issued.id)
        seconds = 11.1
        with pytest.raises(ServiceError, match="revoked"):
            await tokens.check(issued.secret)
        await database.close()

    asyncio.run(run())

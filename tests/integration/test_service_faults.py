"""The service under faults: killed, ended, its database restarted, its store away, replicas."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from evalcore.service.context import Context
from evalcore.service.db import open_database, upgrade
from evalcore.service.serve import ServeOptions, open_context
from evalcore.service.tables import EvalRunRow
from evalcore.settings import Settings
from tests.support.postgresql import PostgreSQL, available_postgresql
from tests.support.processes import until
from tests.support.service import EVALCORE, UNCONFINED, service
from tests.support.service_faults import MarkedRun, kill_during_run

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
]
KILLS = 5


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with available_postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "evalcore.db")
    return str(request.getfixturevalue("server").new_database())


def test_a_killed_service_loses_nothing_and_executes_no_committed_child_again(
    tmp_path: Path, database: str
) -> None:
    arguments = ["--rate", "0", "--database", database]
    killing = kill_during_run(tmp_path, arguments, database, kills=KILLS, seed=1)
    assert killing.losses == []
    assert killing.accepted > KILLS


def test_a_service_that_is_ended_hands_back_its_run(tmp_path: Path, database: str) -> None:
    arguments = ["--rate", "0", "--database", database]
    with service(tmp_path, *arguments, environment=UNCONFINED) as first:
        marked = MarkedRun.start(first, 60)
        until(marked.marks)
        # uvicorn ends as the signal has it, after everything is stopped.
        assert first.kill(signal.SIGTERM) in {0, -signal.SIGTERM}
        before = marked.marks()
    assert 0 < len(before) < 60
    with service(tmp_path, *arguments, environment=UNCONFINED) as second:
        assert marked.ended(second)["completed"] == 60
    assert set(marked.marks().values()) == {1}


def test_replicas_share_one_queue(tmp_path: Path, server: PostgreSQL) -> None:
    arguments = ["--rate", "0", "--database", server.new_database()]
    with (
        service(tmp_path, *arguments, environment=UNCONFINED) as first,
        service(tmp_path, *arguments, environment=UNCONFINED) as second,
    ):
        runs = [MarkedRun.start(replica, 6) for replica in (first, second, first, second)]
        for marked in runs:
            assert marked.ended(first)["completed"] == 6
    # Each run marks the amounts 0 to 5 once.
    assert runs[0].marks() == Counter({number: len(runs) for number in range(6)})


def test_migrations_can_be_applied_twice_at_once(tmp_path: Path, database: str) -> None:
    command = [EVALCORE, "tokens", "list", "--database", database]
    both = [subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()


def test_replicas_can_start_at_once_on_an_empty_database(tmp_path: Path, database: str) -> None:
    async def start() -> Context:
        opened = open_database(database)
        await upgrade(opened)
        options = ServeOptions(store=str(tmp_path / "store"), insecure=True)
        return open_context(options, Settings(), opened)

    async def scenario() -> None:
        replicas = await asyncio.gather(*(start() for _ in range(4)))
        for context in replicas:
            await context.start()
        for context in replicas:
            async with context.database.reading() as session:
                assert await session.scalar(select(func.count(EvalRunRow.id))) == 0
            await context.stop()

    asyncio.run(scenario())


def test_without_its_database_the_service_does_not_start(tmp_path: Path) -> None:
    command = [EVALCORE, "serve", "--database", "postgresql://127.0.0.1:1/nothing"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert "the database does not answer" in ended.stderr
    assert "Traceback" not in ended.stderr

"""One quick test of each kind of the `extended` ones, against one process of the service.

It has PostgreSQL for its database where that is installed. The whole kinds run nightly.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.malformed_answers import assert_refused, requests_to_break, sent
from tests.support.mcp_client import over_http
from tests.support.postgresql import missing_postgresql, postgresql
from tests.support.processes import until
from tests.support.service import UNCONFINED, Service, eval_body, service, token_of
from tests.support.service_faults import MarkedRun

pytestmark = [pytest.mark.multiprocess, pytest.mark.xdist_group("service-essentials")]
EVALS, RUNS, RESULTS = (f"/v1/workflows/evals{part}" for part in ("", "/runs", "/results"))
EXISTS = {"kind": "exists"}
MALFORMED = 60


class Restartable:
    """The service, which a test may kill and start again."""

    def __init__(self, folder: Path, database: str) -> None:
        self._folder, self._database = folder, database
        self._stack = ExitStack()
        self._token = token_of(folder, database=database)

    def start(self) -> Service:
        """Start a process, after the end of the one before."""
        self._stack.close()
        arguments = ("--rate", "0", "--database", self._database)
        running = service(self._folder, *arguments, token=self._token, environment=UNCONFINED)
        return self._stack.enter_context(running)

    def close(self) -> None:
        """End the process."""
        self._stack.close()


@pytest.fixture(scope="module")
def restartable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restartable]:
    folder = tmp_path_factory.mktemp("essentials")
    with ExitStack() as stack:
        database = str(folder / "evalcore.db")
        if missing_postgresql() is None:
            database = stack.enter_context(postgresql()).new_database()
        running = Restartable(folder, database)
        stack.callback(running.close)
        yield running


@pytest.fixture(scope="module")
def served(restartable: Restartable) -> Service:
    return restartable.start()


def test_malformed_requests_are_refused_with_a_place(served: Service) -> None:
    refused = 0
    for request in itertools.islice(requests_to_break(served, seed=3), MALFORMED):
        answer = sent(served, request)
        assert_refused(answer, request)
        refused += answer.status_code >= 400
    assert refused > 0.6 * MALFORMED


def test_a_model_saves_and_runs_an_eval_by_the_tools(served: Service) -> None:
    workflow = served.register()

    async def call(tool: str, **arguments: object) -> dict[str, object]:
        async with over_http(served) as client:
            answer = await client.call_tool(f"workflows_evals_{tool}", arguments)
        assert not answer.is_error, answer.content
        content: dict[str, object] | None = answer.structured_content
        assert content is not None
        return content

    saved = asyncio.run(call("create", **eval_body(workflow, EXISTS)))
    assert saved == served.get(f"{EVALS}/{saved['id']}")
    run = asyncio.run(call("runs_create", workflow_id=workflow))
    ended = served.ended(f"{RUNS}/{run['id']}")
    assert (ended["trigger"], ended["counts"]["outcome"]["passed"]) == ({"type": "mcp"}, 1)


def test_answers_are_those_of_the_openapi_document(served: Service, tmp_path: Path) -> None:
    """A request of each operation without a body, and its answer against all checks."""
    schemathesis = str(Path(sys.executable).with_name("schemathesis"))
    command = [schemathesis, "run", f"{served.url}/openapi.json", "--phases", "fuzzing"]
    command += ["-H", f"Authorization: Bearer {served.token}", "--include-method", "GET"]
    command += ["--max-examples", "1", "--seed", "14", "--no-color", "--mode", "positive"]
    command += ["--request-timeout", "60", "--suppress-health-check", "too_slow"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr


def test_a_run_outlives_a_kill_of_its_service(served: Service, restartable: Restartable) -> None:
    marked = MarkedRun.start(served, 8, sleep_s=0, held_after=3)
    until(lambda: len(marked.marks()) >= 3)
    served.kill()
    marked.open_gate()
    restarted = restartable.start()
    assert marked.ended(restarted)["completed"] == 8
    assert set(marked.marks()) == set(range(8))
    assert max(marked.marks().values()) <= 2

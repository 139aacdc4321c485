"""What the service tells of its requests: metrics, log lines, the number of its statements."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from sqlalchemy import event

from evalcore.service.db import Database
from evalcore.service.evals import EvalQuery, create, list_all
from evalcore.service.models import CreateEval, CreateWorkflow
from evalcore.service.results import ResultQuery, list_results
from evalcore.service.workflows import register
from tests.support.service import WORKFLOW, Service, eval_body, service, token_of
from tests.support.service_in_process import service_context

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.xdist_group("service")]
DOUBLED = {"kind": "equals", "expected": 42}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("observed")
    with service(folder, "--rate", "0", token=token_of(folder)) as running:
        yield running


def lines(served: Service) -> list[dict[str, object]]:
    return [
        orjson.loads(line)
        for line in (served.folder / "service.log").read_bytes().split(b"\n")[:-1]
    ]


def line_of(served: Service, request_id: str) -> dict[str, object]:
    """Return the line of a request, which is written after its answer was sent."""
    deadline = time.monotonic() + 60
    while not (found := [line for line in lines(served) if line.get("request_id") == request_id]):
        assert time.monotonic() < deadline, request_id
        time.sleep(0.02)
    (line,) = found
    return line


def test_a_request_is_a_line_of_the_log(served: Service) -> None:
    workflow = served.register()
    answer = served.client.get(f"/v1/workflows/{workflow}", headers={"X-Request-ID": "seen-1"})
    assert answer.headers["x-request-id"] == "seen-1"
    line = line_of(served, "seen-1")
    assert line.pop("time")
    assert isinstance(line.pop("ms"), float)
    assert str(line.pop("token")).startswith("tok_")
    assert line == {
        "level": "info",
        "event": "request.ended",
        "method": "GET",
        "route": "/v1/workflows/{workflow_id}",
        "status": 200,
        "request_id": "seen-1",
    }


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, 'quo"te'])
def test_an_id_that_is_no_plain_word_is_replaced(served: Service, sent: str) -> None:
    answer = served.client.get("/healthz", headers={"X-Request-ID": sent})
    assert len(answer.headers["x-request-id"]) == 32


def test_a_log_has_neither_tokens_nor_raw_paths(served: Service) -> None:
    assert served.token is not None
    for path in ("/v1/workflows/secret-name?key=secret-value", "/no/such/secret-path"):
        answer = served.client.get(path)
        line_of(served, answer.headers["x-request-id"])
    text = (served.folder / "service.log").read_text()
    secrets = [
        served.token,
        served.token.split("_", 2)[2],
        "secret-name",
        "secret-value",
        "secret-path",
    ]
    assert [secret for secret in secrets if secret in text] == []


def test_a_list_costs_as_many_statements_for_many_evals_as_for_few(tmp_path: Path) -> None:
    few, many = asyncio.run(_statements(tmp_path, 2)), asyncio.run(_statements(tmp_path, 100))
    assert few == many
    assert max(many) <= 8


async def _statements(folder: Path, evals: int) -> list[int]:
    """Return the statements of a list of evals and of a list of results."""
    address = str(folder / f"{evals}.db")
    async with service_context(folder, address=address) as context:
        body = CreateWorkflow.model_validate({"name": "x", "definition": dict(WORKFLOW)})
        workflow = (await register(body, context)).id
        for _ in range(evals):
            await create(CreateEval.model_validate(eval_body(workflow, DOUBLED)), context)
        counted = _counting(context.database)
        listed = await list_all(EvalQuery(limit=100, workflow_id=workflow), context)
        assert len(listed.data) == evals
        of_evals = len(counted)
        await list_results(ResultQuery(), context)
        return [of_evals, len(counted) - of_evals]


def _counting(database: Database) -> list[str]:
    statements: list[str] = []

    def count(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(database.engine.sync_engine, "before_cursor_execute", count)
    return statements

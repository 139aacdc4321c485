"""The service while its store or its database is away: it says so, waits, and goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from evalcore.service import worker as queue_worker
from evalcore.service.context import Context
from evalcore.service.worker import EvalWorker, WorkflowWorker
from evalcore.settings import Settings
from evalcore.storage.s3 import S3Settings, S3Store
from tests.support.postgresql import available_postgresql
from tests.support.servers import BUCKET, Fault, S3Server, faulty_proxy
from tests.support.service import WORKFLOW, eval_body
from tests.support.service_in_process import Requests, requests_to, service_context


def held_until(gate: Path) -> dict[str, Any]:
    """Return a workflow whose block ends once there is a file."""
    code = (
        "import time\n"
        "from pathlib import Path\n"
        "def main(data):\n"
        f"    while not Path({str(gate)!r}).exists():\n"
        "        time.sleep(0.02)\n"
        "    return {'total': 1, 'vendor': {'name': 'x'}}\n"
    )
    block = {**WORKFLOW["blocks"]["extract"], "code": code}
    return {"blocks": {"extract": block}, "workflow": {"entry": "extract", "transitions": []}}


LARGE = "x" * 100_000
FILES = "/v1/files"
EVALS = "/v1/workflows/evals"
RUNS = "/v1/workflows/evals/runs"


@pytest.fixture(autouse=True)
def _waits_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_worker, "_RETRY_S", 0.5)


def working(context: Context) -> None:
    context.workers = [EvalWorker(context, Settings(), 1), WorkflowWorker(context, Settings(), 1)]


async def upload(requests: Requests) -> httpx.Response:
    return await requests.client.post(FILES, files={"file": ("a.txt", b"content")})


async def save(requests: Requests, workflow: str, amount: Any) -> httpx.Response:
    body = eval_body(workflow, {"kind": "exists"}, amount=amount)
    return await requests.client.post(EVALS, json=body)


def assert_away(answer: httpx.Response, part: str) -> None:
    """Assert that an answer says that a part is away, and to come again."""
    assert answer.status_code == 503, answer.text
    assert answer.json() == {"detail": f"{part} does not answer; try again"}
    assert int(answer.headers["Retry-After"]) > 0


@contextmanager
def removed(folder: Path) -> Iterator[None]:
    away = folder.rename(folder.with_name("away"))
    try:
        yield
    finally:
        # What was begun before the removal was noticed may have made the folder again.
        if folder.exists():
            folder.rename(folder.with_name("begun"))
        away.rename(folder)


def test_a_store_whose_folder_was_removed_is_away_until_it_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_context(tmp_path) as context:
            working(context)
            async with requests_to(context) as requests:
                await context.from_store(context.check_store)
                file = (await upload(requests)).json()
                workflow = await requests.register()
                with removed(tmp_path / "store"):
                    for answer in (
                        await requests.client.get("/readyz"),
                        await upload(requests),
                        await requests.client.get(f"{FILES}/{file['id']}/content"),
                    ):
                        assert_away(answer, "the object store")
                    assert (await save(requests, workflow, 21)).status_code == 201
                    assert (await requests.client.get("/healthz")).status_code == 200
                    run = await requests.post(RUNS, {"workflow_id": workflow}, status=202)
                    await asyncio.sleep(1)
                    waiting = await requests.get(f"{RUNS}/{run['id']}")
                    assert waiting["lifecycle"]["status"] not in {"error", "completed"}
                    assert not (tmp_path / "store").exists()
                assert (await requests.client.get("/readyz")).status_code == 200
                content = await requests.client.get(f"{FILES}/{file['id']}/content")
                assert content.content == b"content"
                ended = await requests.ended(f"{RUNS}/{run['id']}")
                assert ended["counts"]["outcome"]["passed"] == 1

    asyncio.run(scenario())


def test_a_store_that_does_not_answer_holds_up_no_other_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalcore.service.context._ANSWER_S", 2.0)
    answers = threading.Event()

    async def scenario() -> None:
        async with service_context(tmp_path) as context, requests_to(context) as requests:
            workflow = await requests.register()
            monkeypatch.setattr(context.store, "exists", lambda _: answers.wait(30))
            refused = await asyncio.gather(*(upload(requests) for _ in range(40)))
            for answer in refused:
                assert_away(answer, "the object store")
            assert_away(await requests.client.get("/readyz"), "the object store")
            assert (await save(requests, workflow, 1)).status_code == 201
            answers.set()

    asyncio.run(scenario())


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.s3
def test_runs_and_requests_outlast_an_outage_of_s3(tmp_path: Path, s3: S3Server) -> None:
    """Half a minute without S3, in each of its ways, while runs, uploads and reads go on."""
    refusals = [
        Fault(status=503),
        Fault(status=500, loses_answer=True),
        Fault(loses_answer=True),
        Fault(cuts_body=True),
    ]

    async def scenario() -> None:
        with faulty_proxy(s3.url) as proxy:
            store = S3Store(BUCKET, f"outage-{time.time_ns()}", S3Settings(endpoint_url=proxy.url))
            async with service_context(tmp_path, store=store) as context:
                working(context)
                async with requests_to(context) as requests:
                    await context.from_store(context.check_store)
                    file = (await upload(requests)).json()
                    paths = [await requests.start_run(10) for _ in range(2)]
                    workflow = await requests.register()
                    started = await requests.post(
                        f"/v1/workflows/{workflow}/runs",
                        {"inputs": {"amount": 1, "name": LARGE}},
                        status=202,
                    )
                    counter = iter(range(1_000_000))
                    proxy.rule = lambda *_: refusals[next(counter) % len(refusals)]
                    ends_s = time.monotonic() + 30
                    statuses: set[int] = set()
                    while time.monotonic() < ends_s:
                        answers = await asyncio.gather(
                            requests.client.get("/readyz"),
                            upload(requests),
                            requests.client.get(f"{FILES}/{file['id']}/content"),
                            save(requests, workflow, LARGE),
                            *(requests.client.get(path) for path in paths),
                        )
                        statuses |= {answer.status_code for answer in answers}
                        for answer in answers:
                            if answer.status_code == 503:
                                assert_away(answer, "the object store")
                    proxy.rule = lambda *_: None
                    assert 503 in statuses
                    assert statuses <= {200, 201, 503}
                    assert (await requests.client.get("/readyz")).status_code == 200
                    for path in paths:
                        run = await requests.ended(path)
                        assert run["lifecycle"] == {"status": "completed"}
                        assert run["counts"]["outcome"]["passed"] == 10
                    run = await requests.ended(f"/v1/workflows/runs/{started['id']}")
                    assert run["lifecycle"] == {"status": "completed"}

    asyncio.run(scenario())


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.multiprocess
def test_requests_and_runs_outlast_an_outage_of_postgresql(tmp_path: Path) -> None:
    async def scenario() -> None:
        address, gate = server.new_database(), tmp_path / "gate"
        async with service_context(tmp_path, address=address) as context:
            working(context)
            async with requests_to(context) as requests:
                path = await requests.start_run(3)
                await requests.ended(path)
                waiting = await requests.start_run(1, held_until(gate))
                while (await requests.get(waiting))["lifecycle"]["status"] != "running":
                    await asyncio.sleep(0.05)
                workflow = await requests.register()
                await asyncio.to_thread(server.stop)
                for answer in (
                    await requests.client.get("/readyz"),
                    await upload(requests),
                    await requests.client.get(path),
                    await requests.client.get("/metrics"),
                    await save(requests, workflow, 1),
                    await requests.client.post(f"{path}/cancel"),
                ):
                    assert_away(answer, "the database")
                assert (await requests.client.get("/healthz")).status_code == 200
                await asyncio.sleep(3)
                await asyncio.to_thread(server.start)
                assert (await requests.client.get("/readyz")).status_code == 200
                assert (await requests.get(waiting))["lifecycle"] == {"status": "running"}
                gate.touch()
                assert (await requests.ended(waiting))["counts"]["outcome"]["passed"] == 1
                run = await requests.ended(await requests.start_run(3))
                assert run["counts"]["outcome"]["passed"] == 3

    with available_postgresql() as server:
        asyncio.run(scenario())

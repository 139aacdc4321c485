"""The service's application in the test's own process: real context, no server, no port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from evalcore.service.app import create_application
from evalcore.service.auth import Caller, RateLimiter, Scope, Tokens
from evalcore.service.context import Context
from evalcore.service.db import open_database, upgrade
from evalcore.storage.local import LocalStore
from evalcore.storage.store import ObjectStore
from tests.support.service import WORKFLOW, eval_body

URL = "http://127.0.0.1:8321"
_RUNS = "/v1/workflows/evals/runs"


@asynccontextmanager
async def service_context(
    folder: Path,
    *,
    address: str | None = None,
    store: ObjectStore | None = None,
) -> AsyncIterator[Context]:
    """Give what a service has, without tokens and without workers, on SQLite by default."""
    database = open_database(address or str(folder / "evalcore.db"))
    await upgrade(database)
    context = Context(
        database=database,
        store=store or LocalStore(folder / "store"),
        tokens=Tokens(database),
        rates=RateLimiter(0),
        open_to=Caller(Scope.ADMIN),
    )
    try:
        yield context
    finally:
        await database.close()


class Requests:
    """Requests to an application; answers that are not as expected fail the test."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON of an answer that has to be 200."""
        answer = await self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any = None, *, status: int = 201) -> Any:
        """Return the JSON of an answer that has to have a status."""
        answer = await self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def register(self, definition: Mapping[str, Any] = WORKFLOW) -> str:
        """Return the id of a new workflow."""
        body = {"name": "invoices", "definition": definition}
        return str((await self.post("/v1/workflows", body))["id"])

    async def start_run(self, evals: int = 1, definition: Mapping[str, Any] = WORKFLOW) -> str:
        """Return the path of a new run of so many evals."""
        workflow = await self.register(definition)
        for number in range(evals):
            body = eval_body(workflow, {"kind": "exists"}, amount=number)
            await self.post("/v1/workflows/evals", body)
        run = await self.post(_RUNS, {"workflow_id": workflow}, status=202)
        return f"{_RUNS}/{run['id']}"

    async def ended(self, path: str) -> Any:
        """Return what stands at a path when its status is final."""
        async with asyncio.timeout(120):
            while True:
                resource = await self.get(path)
                if resource["lifecycle"]["status"] in {"completed", "error", "cancelled"}:
                    return resource
                await asyncio.sleep(0.05)


@asynccontextmanager
async def requests_to(context: Context) -> AsyncIterator[Requests]:
    """Run the application and the workers of the service; give its requests."""
    application = create_application(context)
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    for worker in context.workers:
        await worker.start()
    try:
        async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
            yield Requests(client)
    finally:
        for worker in context.workers:
            await worker.stop()

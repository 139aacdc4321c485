"""The service as a process of its own, and its API as tests call it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import orjson
from click.testing import CliRunner
from starlette.testclient import TestClient

from evalcore.settings import Settings
from tests.support.processes import until
from tests.support.servers import free_port, running, wait_until_ready
from tests.support.viewer import pages_with_history

if TYPE_CHECKING:
    from fastapi import FastAPI

EVALCORE = str(Path(sys.executable).with_name("evalcore"))
_ENDED_S = 300.0
# For blocks that mark files beside the service's, or end it.
UNCONFINED: Mapping[str, str] = {**os.environ, "EVALCORE_ALLOW_UNCONFINED_CODE": "1"}
WORKFLOW: Mapping[str, Any] = {
    "blocks": {
        "extract": {
            "type": "code",
            "code": (
                "def main(data):\n"
                "    if data['amount'] == 'broken':\n"
                "        raise ValueError('no amount')\n"
                "    return {'total': data['amount'] * 2, 'vendor': {'name': data['name']}}\n"
            ),
            "inputs": {"amount": "workflow.amount", "name": "workflow.name"},
            "outputs": {
                "type": "object",
                "properties": {
                    "total": {"type": "number"},
                    "vendor": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
            },
        },
        "label": {
            "type": "code",
            "code": "def main(data):\n    return f\"{data['name']}!\"\n",
            "inputs": {"name": "extract.vendor.name"},
            "depends": "extract",
        },
    },
    "workflow": {"entry": "extract", "transitions": [{"from": "extract", "to": "label"}]},
}


@dataclass
class Service:
    """A running service and the token that requests carry."""

    url: str
    folder: Path
    token: str | None = None
    process: subprocess.Popen[bytes] | None = None
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the JSON of an answer that has to be 200."""
        answer = self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, *, status: int = 201, **headers: str) -> Any:
        """Return the JSON of an answer that has to have a status."""
        answer = self.client.post(path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def register(self, definition: Mapping[str, Any] = WORKFLOW, name: str = "invoices") -> str:
        """Return the id of a new workflow."""
        body = {"name": name, "definition": definition}
        return str(self.post("/v1/workflows", body)["id"])

    def save(self, workflow: str, condition: Mapping[str, Any], **changes: Any) -> str:
        """Return the id of a new eval of the block `extract`."""
        return str(
            self.post("/v1/workflows/evals", eval_body(workflow, condition, **changes))["id"]
        )

    def run(self, workflow: str, scope: Mapping[str, Any] | None = None) -> Any:
        """Run evals; return the run when it has ended."""
        body = {"workflow_id": workflow, "scope": scope}
        run = self.post("/v1/workflows/evals/runs", body, status=202)
        return self.ended(f"/v1/workflows/evals/runs/{run['id']}")

    def ended(self, path: str) -> Any:
        """Return what stands at a path when its status is final."""

        def ended() -> Any:
            resource = self.get(path)
            final = {"completed", "error", "cancelled"}
            return resource if resource["lifecycle"]["status"] in final else None

        return until(ended, seconds=_ENDED_S, why=lambda: self.get(path))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send the process a signal; return its exit code when it has ended."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(timeout=120)

    def results(self, run: Mapping[str, Any]) -> list[Any]:
        """Return the results of a run, the newest first."""
        page = self.get("/v1/workflows/evals/results", run_id=run["id"], limit=100)
        return list(page["data"])


def eval_body(
    workflow: str,
    condition: Mapping[str, Any],
    *,
    path: str | None = "total",
    handle: str = "output-json-0",
    amount: Any = 21,
    block: str = "extract",
) -> dict[str, Any]:
    """Return the body of an eval of `WORKFLOW`."""
    inputs = {"input-json-0": {"type": "json", "data": amount}}
    if block == "extract":
        inputs["input-json-1"] = {"type": "json", "data": "Acme"}
    return {
        "workflow_id": workflow,
        "target": {"type": "block", "block_id": block},
        "source": {"type": "manual", "handle_inputs": inputs},
        "assertion": {
            "target": {"output_handle_id": handle, "path": path},
            "condition": condition,
        },
    }


@contextlib.contextmanager
def service(
    folder: Path,
    *arguments: str,
    token: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Service]:
    """Run `evalcore serve` in a folder; without a token it is insecure."""
    port = free_port()
    command = [EVALCORE, "serve", "--port", str(port), *arguments]
    command += ["--insecure"] if token is None else []
    log = folder / "service.log"
    surroundings = {**environment, "PWD": str(folder)}
    with contextlib.chdir(folder), running(command, surroundings, log) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, f"{url}/healthz", log)
        yield Service(url, folder, token, process)


def token_of(folder: Path, scope: str = "workflows", *, database: str = "evalcore.db") -> str:
    """Return a new token of the service in a folder."""
    from evalcore.cli.serve import tokens

    command = ["create", "test", "--scope", scope, "--database", database]
    with contextlib.chdir(folder):
        ended = CliRunner().invoke(tokens, [*command, "--json"], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return str(orjson.loads(ended.stdout)["token"])


async def service_application(
    folder: Path, database: str, *, workers: int, with_token: bool
) -> tuple[FastAPI, str | None]:
    """Return the application over `folder/store`, for any event loop, and a token if it asks."""
    from evalcore.service.app import create_application
    from evalcore.service.auth import Scope
    from evalcore.service.db import open_database, upgrade
    from evalcore.service.serve import ServeOptions, open_context

    options = ServeOptions(
        database=database,
        insecure=not with_token,
        requests_per_second=0,
        store=str(folder / "store"),
        runs_at_once=workers or 1,
    )
    opened = open_database(database)
    await upgrade(opened)
    context = open_context(options, Settings(), opened)
    if not workers:
        context.workers = ()
    token = None
    if with_token:
        token = (await context.tokens.issue("test", Scope.WORKFLOWS)).secret
    await opened.close()  # its connections belong to this event loop
    return create_application(context), token


@contextlib.contextmanager
def local_service(
    folder: Path,
    database: str = "sqlite:///evalcore.db",
    *,
    workers: int = 4,
    with_token: bool = False,
) -> Iterator[Service]:
    """Run the application in this process, without a port; much cheaper.

    Without workers what is queued stays so. If it asks for a token, one is in its requests.
    """
    running = Service("http://127.0.0.1", folder)
    with contextlib.chdir(folder):
        application, running.token = asyncio.run(
            service_application(folder, database, workers=workers, with_token=with_token)
        )
        with (
            pages_with_history(),
            TestClient(application, running.url, raise_server_exceptions=False) as client,
        ):
            running.client = cast(httpx.Client, client)  # with the same methods
            if with_token:
                running.client.headers["Authorization"] = f"Bearer {running.token}"
            yield running

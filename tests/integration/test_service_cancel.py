"""Cancelling a run of saved evals: waiting, running, twice, ended; by a client or after a death."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from evalcore.model.run import State
from evalcore.service.worker import EvalWorker
from evalcore.settings import Settings
from evalcore.storage.runs import list_runs
from tests.support.service import WORKFLOW, eval_body
from tests.support.service_in_process import Requests, requests_to, service_context

EVALS = "/v1/workflows/evals"
SLOW: dict[str, Any] = {
    "blocks": {
        "extract": {
            **WORKFLOW["blocks"]["extract"],
            "code": (
                "import time\n"
                "def main(data):\n"
                "    time.sleep(data['amount'])\n"
                "    return {'total': 1, 'vendor': {'name': 'x'}}\n"
            ),
        }
    },
    "workflow": {"entry": "extract", "transitions": []},
}


async def start(requests: Requests, seconds: list[float]) -> str:
    """Return the path of a run with an eval for each number of seconds."""
    workflow = await requests.register(SLOW)
    for amount in seconds:
        await requests.post(EVALS, eval_body(workflow, {"kind": "exists"}, amount=amount))
    run = await requests.post(f"{EVALS}/runs", {"workflow_id": workflow}, status=202)
    return f"{EVALS}/runs/{run['id']}"


async def cancel(requests: Requests, path: str) -> httpx.Response:
    return await requests.client.post(f"{path}/cancel")


def test_a_run_that_waits_is_cancelled_once_and_never_executed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_context(tmp_path) as context, requests_to(context) as requests:
            path = await start(requests, [0, 0])
            answers = await asyncio.gather(*(cancel(requests, path) for _ in range(3)))
            assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
            worker = EvalWorker(context, Settings(), 1)
            await worker.start()
            other = await requests.ended(await start(requests, [0]))
            await worker.stop()
            assert other["lifecycle"] == {"status": "completed"}
            run = await requests.get(path)
            assert run["lifecycle"] == {"status": "cancelled"}
            assert run["counts"]["lifecycle_counts"]["cancelled"] == run["total_evals"] == 2
            assert len([*list_runs(context.store)]) == 1

    asyncio.run(scenario())


def test_a_run_that_is_executed_keeps_its_results_and_ends_in_the_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_context(tmp_path) as context:
            worker = EvalWorker(context, Settings(), 1)
            context.workers = [worker]
            async with requests_to(context) as requests:
                path = await start(requests, [0, 60, 60])
                while (await requests.get(path))["counts"]["outcome"]["passed"] == 0:
                    await asyncio.sleep(0.05)
                assert (await cancel(requests, path)).status_code == 200
                assert (await cancel(requests, path)).status_code == 409
                # Two items of a minute each are not waited for.
                other = await requests.ended(await start(requests, [0]))
                assert other["lifecycle"] == {"status": "completed"}
                run = await requests.get(path)
                counts = run["counts"]["lifecycle_counts"]
                assert (counts["completed"], counts["cancelled"]) == (1, 2)
                assert run["counts"]["outcome"] == {"passed": 1, "failed": 0, "blocked": 0}
                page = await requests.get(f"{EVALS}/results", run_id=run["id"])
                assert [row["lifecycle"]["status"] for row in page["data"]].count("completed") == 1
                states = [manifest.state for manifest in list_runs(context.store)]
                assert sorted(states) == [State.CANCELLED, State.COMPLETED]

    asyncio.run(scenario())


def test_a_run_that_has_ended_cannot_be_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_context(tmp_path) as context:
            context.workers = [EvalWorker(context, Settings(), 1)]
            async with requests_to(context) as requests:
                path = await start(requests, [0])
                await requests.ended(path)
                answer = await cancel(requests, path)
                assert (answer.status_code, answer.json()) == (
                    409,
                    {"detail": "the run has ended: it is completed"},
                )
                assert (await cancel(requests, f"{EVALS}/runs/none")).status_code == 404

    asyncio.run(scenario())

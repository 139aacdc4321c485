"""Several runs at once, in turns of the projects."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.service.auth import Caller, Scope, project_id
from evalcore.service.worker import EvalWorker
from evalcore.settings import Settings
from tests.support.service import eval_body, local_service
from tests.support.service_in_process import requests_to, service_parts

_RUNS = "/v1/workflows/evals/runs"


def test_projects_take_turns(tmp_path: Path, database: str) -> None:
    assert asyncio.run(_claimed_projects(tmp_path, database)) == ["busy", "quiet", "busy", "busy"]


async def _claimed_projects(folder: Path, address: str) -> list[str]:
    """Return whose runs four workers take, after one project has queued three and one a fourth."""
    async with service_parts(folder, address=address) as parts:
        names = {}
        for name, runs in (("busy", 3), ("quiet", 1)):
            async with parts.database.transaction() as session:
                project = await project_id(session, name, datetime.now(UTC))
            names[project] = name
            parts.open_to = Caller(project, Scope.WRITE)
            async with requests_to(parts) as requests:
                for _ in range(runs):
                    await requests.start_run()
        claimed = [await EvalWorker(parts, Settings())._claim() for _ in range(4)]
        return [names[row.project_id] for row in claimed]


def test_a_service_executes_several_runs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_ALLOW_UNCONFINED_CODE", "1")
    # Each block ends only once the other one has begun.
    code = (
        "def main(data):\n"
        "    import pathlib, time\n"
        f"    folder = pathlib.Path({str(tmp_path)!r})\n"
        "    (folder / f\"mark-{data['amount']}\").touch()\n"
        "    ends = time.monotonic() + 60\n"
        "    while len(list(folder.glob('mark-*'))) < 2 and time.monotonic() < ends:\n"
        "        time.sleep(0.05)\n"
        "    return {'total': len(list(folder.glob('mark-*')))}\n"
    )
    definition = {
        "blocks": {
            "extract": {
                "type": "code",
                "code": code,
                "inputs": {"amount": "workflow.amount", "name": "workflow.name"},
            }
        },
        "workflow": {"entry": "extract"},
    }
    with local_service(tmp_path) as served:
        runs = []
        for amount in (1, 2):
            workflow = served.register(definition)
            body = eval_body(workflow, {"kind": "equals", "expected": 2}, amount=amount)
            served.post("/v1/workflows/evals", body)
            runs.append(served.post(_RUNS, {"workflow_id": workflow}, status=202))
        ended = [served.ended(f"{_RUNS}/{run['id']}") for run in runs]
    assert [run["counts"]["outcome"]["passed"] for run in ended] == [1, 1]


def test_a_run_that_waits_is_queued(tmp_path: Path) -> None:
    with local_service(tmp_path, workers=0) as served:
        workflow = served.register()
        served.save(workflow, {"kind": "exists"})
        accepted = served.post(_RUNS, {"workflow_id": workflow}, status=202)
        waiting = served.get(f"{_RUNS}/{accepted['id']}")
    assert accepted["lifecycle"] == {"status": "pending"}
    assert waiting["lifecycle"] == {"status": "queued"}
    assert waiting["counts"]["lifecycle_counts"]["pending"] == 1

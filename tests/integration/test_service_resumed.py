"""Runs of the service whose process dies: resumed like any other run, and nothing is left open."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from evalcore.checks.conditions import EvalAssertion
from evalcore.execution.stopper import Stopper
from evalcore.model.run import State
from evalcore.model.suite import Suite
from evalcore.service.engine import (
    FrozenEval,
    committed_results,
    eval_suite,
    execute,
    is_planned,
    plan,
)
from evalcore.service.tables import EvalRunRow, new_engine_run
from evalcore.service.worker import EvalWorker
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, list_runs, open_run
from tests.support.processes import exit_code
from tests.support.service import local_service
from tests.support.service_in_process import requests_to, service_context

EVALS, RUNS = "/v1/workflows/evals", "/v1/workflows/evals/runs"
WORKFLOW_ID = "wf_deadly"


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks write their marks and end the process."""
    monkeypatch.setenv("EVALCORE_ALLOW_UNCONFINED_CODE", "1")


class KilledError(BaseException):
    """Ends a planning as `kill -9` does: nothing more is written."""


def dies(*_: Any) -> None:
    raise KilledError


def deadly_workflow(marks: Path) -> dict[str, Any]:
    """Return a workflow whose block notes its amount, and kills the service for a negative one."""
    code = (
        "import os, signal\n"
        "def main(data):\n"
        f"    file = os.open({str(marks)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
        "    os.write(file, f\"{data['amount']}\\n\".encode())\n"
        "    if data['amount'] < 0:\n"
        "        os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return 1\n"
    )
    block = {"type": "code", "code": code, "inputs": {"amount": "workflow.amount"}}
    return {"blocks": {"extract": block}, "workflow": {"entry": "extract", "transitions": []}}


def executions(marks: Path) -> Counter[int]:
    return Counter(map(int, marks.read_text().split()))


def new_run(folder: Path) -> StoredRun:
    store = LocalStore(folder / "store")
    return open_run(store, WORKFLOW_ID, new_engine_run(datetime.now(UTC)))


def suite_of(folder: Path, amounts: list[int], workflow: str = WORKFLOW_ID) -> Suite:
    assertion = EvalAssertion.model_validate(
        {
            "id": "assert_x",
            "target": {"output_handle_id": "output-json-0"},
            "condition": {"kind": "exists"},
        }
    )
    evals = [
        FrozenEval(
            f"eval_{amount}",
            "extract",
            {"input-json-0": {"type": "json", "data": amount}},
            assertion,
        )
        for amount in amounts
    ]
    return eval_suite(workflow, deadly_workflow(folder / "marks"), evals)


def planned(folder: Path, amounts: list[int]) -> StoredRun:
    run = new_run(folder)
    plan(run, suite_of(folder, amounts), Settings())
    return open_run(run.store, WORKFLOW_ID, run.run_id)


def execute_to_end(run: StoredRun) -> None:
    execute(run, Settings(), Stopper())


def attempt(run: StoredRun) -> int | None:
    """Execute a run in a process of its own, as each start of the service does."""
    return exit_code(execute_to_end, run)


@pytest.mark.multiprocess
def test_evals_that_end_the_process_are_executed_three_times_and_the_others_finish(
    tmp_path: Path,
) -> None:
    amounts = [1, -1, 2, -2, 3]
    run = planned(tmp_path, amounts)
    codes = [attempt(run)]
    while codes[-1] == -signal.SIGKILL and len(codes) < 10:
        codes.append(attempt(run))
    killed = codes[:-1]
    assert codes[-1] == 0
    assert run.manifest().state is State.COMPLETED
    marks = executions(tmp_path / "marks")
    # At most twice with all others and once alone, in a process of its own: an end of the process
    # counts for each eval that was begun, and of two at the same time the quicker one may end the
    # other before its mark.
    assert 1 <= min(marks[-1], marks[-2]) <= max(marks[-1], marks[-2]) <= 3
    assert 2 <= len(killed) <= marks[-1] + marks[-2]
    results = {
        result.eval_id: result for _, shard in committed_results(run, set()) for result in shard
    }
    for amount in amounts:
        error = results[f"eval_{amount}"].error
        assert (None if error is None else error["code"]) == (None if amount > 0 else "process")


@pytest.mark.parametrize("writes", range(6))
def test_a_run_whose_process_dies_while_it_is_planned_is_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """`writes`: after so many writes of the plan, the lease included."""
    run, suite = new_run(tmp_path), suite_of(tmp_path, [1])
    left, put = iter(range(writes)), LocalStore.put_if_absent

    def put_or_die(store: LocalStore, key: str, data: Any) -> Any:
        if next(left, None) is None:
            raise KilledError
        return put(store, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", put_or_die)
        patch.setattr("evalcore.pipeline.plan.sign_plan", dies)
        with pytest.raises(KilledError):
            plan(run, suite, Settings())
    assert not is_planned(run)
    plan(run, suite, Settings())
    execute_to_end(open_run(run.store, WORKFLOW_ID, run.run_id))
    assert [manifest.state for manifest in list_runs(run.store)] == [State.COMPLETED]
    assert executions(tmp_path / "marks") == {1: 1}


def test_what_a_cancelled_run_of_a_dead_process_left_open_is_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with service_context(tmp_path) as context, requests_to(context) as requests:
            path = await requests.start_run()
            async with context.database.reading() as session:
                row = (await session.scalars(select(EvalRunRow))).one()
            run = open_run(context.store, row.workflow_id, row.engine_run)
            plan(run, suite_of(tmp_path, [1], row.workflow_id), Settings())
            await requests.post(f"{path}/cancel", status=200)
            worker = EvalWorker(context, Settings(), 1)
            await worker.start()
            async with asyncio.timeout(60):
                while run.manifest().state is State.RUNNING:
                    await asyncio.sleep(0.05)
            await worker.stop()
            assert run.manifest().state is State.CANCELLED
            assert (await requests.get(path))["lifecycle"] == {"status": "cancelled"}

    asyncio.run(scenario())


def test_a_service_executes_several_runs_at_once(tmp_path: Path) -> None:
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
    inputs = {"amount": "workflow.amount", "name": "workflow.name"}
    block = {"type": "code", "code": code, "inputs": inputs}
    definition = {"blocks": {"extract": block}, "workflow": {"entry": "extract"}}
    with local_service(tmp_path) as served:
        runs = []
        for amount in (1, 2):
            workflow = served.register(definition)
            served.save(workflow, {"kind": "equals", "expected": 2}, amount=amount)
            runs.append(served.post(RUNS, {"workflow_id": workflow}, status=202))
        ended = [served.ended(f"{RUNS}/{run['id']}") for run in runs]
    assert [run["counts"]["outcome"]["passed"] for run in ended] == [1, 1]


def test_a_run_that_waits_is_queued(tmp_path: Path) -> None:
    with local_service(tmp_path, workers=0) as served:
        workflow = served.register()
        served.save(workflow, {"kind": "exists"})
        accepted = served.post(RUNS, {"workflow_id": workflow}, status=202)
        waiting = served.get(f"{RUNS}/{accepted['id']}")
    assert accepted["lifecycle"] == {"status": "pending"}
    assert waiting["lifecycle"] == {"status": "queued"}
    assert waiting["counts"]["lifecycle_counts"]["pending"] == 1

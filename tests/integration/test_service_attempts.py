"""Runs of the service whose process dies: tried again, not for ever, and nothing is left open."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from evalcore.model.run import State
from evalcore.pipeline.session import ExecuteOptions, opened_run
from evalcore.planning.shards import pending_shards
from evalcore.prefect.runner import PrefectRunner
from evalcore.service import engine as engine_run
from evalcore.service import worker as eval_worker
from evalcore.service import worker as workflow_worker
from evalcore.service.context import Parts
from evalcore.service.tables import EvalRunRow, WorkflowRunRow
from evalcore.service.worker import EvalWorker, QueueWorker, WorkflowWorker
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, list_runs
from tests.support.service_in_process import Requests, requests_to, service_parts

INPUTS = {"amount": 1, "name": "Acme"}


class KilledError(BaseException):
    """Ends a worker as `kill -9` does: nothing that follows is carried out."""


def dies(*_: Any, **__: Any) -> Any:
    raise KilledError


async def die(worker: QueueWorker[Any]) -> None:
    """Let a worker take what waits and die of it; its lease ends."""
    await worker.start()
    with suppress(KilledError):
        assert worker._task is not None
        await asyncio.wait_for(worker._task, 120)
    await lease_ended(worker.parts)


async def lease_ended(parts: Parts) -> None:
    async with parts.database.transaction() as session:
        for table in (EvalRunRow, WorkflowRunRow):
            await session.execute(
                update(table).values(lease_until=parts.database.moment(-1), worker="worker_dead")
            )


async def ended(parts: Parts, requests: Requests, worker: Any, path: str) -> Any:
    """Return what a worker that lives makes of a run."""
    await worker.start()
    run = await requests.ended(path)
    # The next look for work ends what is left open.
    await worker.stop()
    await worker.close_ended()
    return run


def states(parts: Parts) -> list[State]:
    return [manifest.state for manifest in list_runs(parts.store)]


@pytest.mark.parametrize("times", [2, 3])
def test_an_eval_run_whose_process_dies_is_executed_three_times_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            path = await requests.start_run()
            with monkeypatch.context() as patch:
                patch.setattr(eval_worker, "execute_evals", dies)
                for _ in range(times):
                    await die(EvalWorker(parts, Settings()))
            run = await ended(parts, requests, EvalWorker(parts, Settings()), path)
            counts = run["counts"]["lifecycle_counts"]
            if times == 2:
                assert (run["lifecycle"], counts["completed"]) == ({"status": "completed"}, 1)
                return
            assert run["lifecycle"]["error"]["code"] == "ProcessEndedError"
            assert "ended 3 times" in run["lifecycle"]["error"]["message"]
            assert counts["error"] == 1
            assert states(parts) == [State.CANCELLED]

    asyncio.run(scenario())


def test_a_workflow_run_whose_process_dies_is_executed_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            workflow = await requests.register()
            started = await requests.post(
                f"/v1/workflows/{workflow}/runs", {"inputs": INPUTS}, status=202
            )
            with monkeypatch.context() as patch:
                patch.setattr(workflow_worker, "execute_workflow", dies)
                for _ in range(3):
                    await die(WorkflowWorker(parts, Settings()))
            path = f"/v1/workflows/runs/{started['id']}"
            run = await ended(parts, requests, WorkflowWorker(parts, Settings()), path)
            assert run["lifecycle"]["error"]["code"] == "ProcessEndedError"
            assert states(parts) == [State.CANCELLED]

    asyncio.run(scenario())


def test_a_run_that_other_processes_execute_is_watched_as_often_as_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            path = await requests.start_run()
            with monkeypatch.context() as patch:
                patch.setattr(eval_worker, "attend_submitted", dies)
                for _ in range(5):
                    await die(EvalWorker(parts, Settings(), PrefectRunner()))
            run = await ended(parts, requests, EvalWorker(parts, Settings()), path)
            assert run["lifecycle"] == {"status": "completed"}

    asyncio.run(scenario())


@pytest.mark.parametrize(("attempts", "at_once"), [(0, 2), (1, 1)])
def test_runs_that_may_have_ended_the_process_are_executed_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempts: int, at_once: int
) -> None:
    """A run that ends the process takes no other one with it each time.

    One that has a result does not end the process at once: the next one may begin beside it.
    """
    execute, most = engine_run.execute_evals, [0]
    executing: list[StoredRun] = []
    barrier = threading.Barrier(at_once)

    def counted(run: StoredRun, *arguments: Any) -> Any:
        executing.append(run)
        most[0] = max(most[0], sum(not begun.written_shards() for begun in tuple(executing)))
        barrier.wait(60)
        try:
            return execute(run, *arguments)
        finally:
            executing.remove(run)

    monkeypatch.setattr(eval_worker, "execute_evals", counted)

    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            paths = [await requests.start_run() for _ in range(2)]
            async with parts.database.transaction() as session:
                await session.execute(update(EvalRunRow).values(attempts=attempts))
            parts.workers = [EvalWorker(parts, Settings()) for _ in range(2)]
            for worker in parts.workers:
                await worker.start()
            for path in paths:
                assert (await requests.ended(path))["lifecycle"] == {"status": "completed"}
            assert most == [at_once]

    asyncio.run(scenario())


def test_an_attempt_that_gave_a_result_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long run outlives any number of restarts as long as it comes forward."""

    def execute_one_and_die(run: StoredRun, settings: Settings, _: object) -> None:
        left = pending_shards(run.manifest().plan, run.written_shards())
        with opened_run(run, ExecuteOptions(settings=settings), epoch=1) as opened:
            opened.execute(left[0]).result()
        dies()

    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            path = await requests.start_run(6)
            with monkeypatch.context() as patch:
                patch.setattr(eval_worker, "execute_evals", execute_one_and_die)
                for _ in range(5):
                    await die(EvalWorker(parts, Settings()))
            run = await ended(parts, requests, EvalWorker(parts, Settings()), path)
            assert run["lifecycle"] == {"status": "completed"}
            assert run["counts"]["lifecycle_counts"]["completed"] == 6

    asyncio.run(scenario())


def test_a_run_whose_process_dies_after_its_last_result_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = engine_run.execute_evals

    def execute_and_die(*arguments: Any) -> Any:
        execute(*arguments)
        dies()

    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            path = await requests.start_run(2)
            with monkeypatch.context() as patch:
                patch.setattr(eval_worker, "execute_evals", execute_and_die)
                for _ in range(4):
                    await die(EvalWorker(parts, Settings()))
            run = await ended(parts, requests, EvalWorker(parts, Settings()), path)
            assert run["counts"]["lifecycle_counts"]["completed"] == 2
            assert run["lifecycle"] == {"status": "completed"}
            assert states(parts) == [State.COMPLETED]

    asyncio.run(scenario())


@pytest.mark.parametrize("writes", [0, 1, 2, 3, None])
def test_a_run_whose_process_dies_while_it_is_planned_leaves_no_open_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int | None
) -> None:
    """`writes`: so many writes of the plan; None: the whole plan, and not its id in the row."""

    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            path = await requests.start_run()
            with monkeypatch.context() as patch:
                if writes is None:
                    plan = engine_run.plan_evals
                    patch.setattr(
                        eval_worker, "plan_evals", lambda *values: (plan(*values), dies())
                    )
                else:
                    left, put = iter(range(writes)), LocalStore.put_if_absent

                    def put_or_die(store: LocalStore, key: str, data: Any) -> Any:
                        return dies() if next(left, None) is None else put(store, key, data)

                    patch.setattr(LocalStore, "put_if_absent", put_or_die)
                await die(EvalWorker(parts, Settings()))
            run = await ended(parts, requests, EvalWorker(parts, Settings()), path)
            assert run["counts"]["outcome"]["passed"] == 1
            assert State.RUNNING not in states(parts)
            assert states(parts).count(State.COMPLETED) == 1
            if writes is None:
                assert states(parts) == [State.COMPLETED]

    asyncio.run(scenario())


def test_what_a_cancelled_run_of_a_dead_process_left_open_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with service_parts(tmp_path) as parts, requests_to(parts) as requests:
            path = await requests.start_run()
            with monkeypatch.context() as patch:
                patch.setattr(eval_worker, "execute_evals", dies)
                await die(EvalWorker(parts, Settings()))
            assert states(parts) == [State.RUNNING]
            await requests.post(f"{path}/cancel", status=200)
            run = await ended(parts, requests, EvalWorker(parts, Settings()), path)
            assert run["lifecycle"] == {"status": "cancelled"}
            assert states(parts) == [State.CANCELLED]

    asyncio.run(scenario())

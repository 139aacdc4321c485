"""A run that goes on: what its page shows, and the events that its viewers are sent."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import httpx
import orjson
import pytest
from starlette.testclient import TestClient

from evalcore.errors import RunNotFoundError
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun
from evalcore.viewer.live_runs import LiveRuns, Look
from tests.support.fork_server import PROGRAM
from tests.support.leases import ended_process, put_lease
from tests.support.live_run import CASES, execute, finish, planned_run
from tests.support.viewer import viewer


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.01)


def test_viewers_of_a_run_share_one_thread_and_see_each_change(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    live = LiveRuns(run.store, look_every_s=0.02)

    async def view(looks: list[Look]) -> None:
        async with aclosing(live.follow(run.run_id)) as followed:
            async for look in followed:
                looks.append(look)

    async def watch() -> list[list[Look]]:
        seen_by: list[list[Look]] = [[] for _ in range(5)]
        viewers = [asyncio.create_task(view(looks)) for looks in seen_by]
        await until(lambda: all(seen_by))
        threads = [each for each in threading.enumerate() if each.name == f"viewer-{run.run_id}"]
        assert len(threads) == 1
        await asyncio.to_thread(execute, run, 0, 1)
        await until(lambda: all(looks[-1]["items"]["done"] == 2 for looks in seen_by))
        await asyncio.to_thread(execute, run, 2, 3)
        await asyncio.to_thread(finish, run)
        await asyncio.wait_for(asyncio.gather(*viewers), 60)
        return seen_by

    for looks in asyncio.run(watch()):
        assert looks[-1]["decision"] == "pass"
        assert looks[-1]["items"]["done"] == CASES
    assert not live.watched_runs


def test_a_viewer_that_leaves_frees_the_thread(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    live = LiveRuns(run.store, look_every_s=60)

    async def leave() -> None:
        async with aclosing(live.follow(run.run_id)) as followed:
            await anext(followed)
            assert live.viewers(run.run_id) == 1
        await until(lambda: not live.watched_runs)

    asyncio.run(leave())


def test_ctrl_c_ends_the_viewer_and_the_pages_that_follow_a_run(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, 0)
    command = [PROGRAM, "view", str(tmp_path / "store"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[2]
        with httpx.stream("GET", f"{address}runs/{run.run_id}/events", timeout=60) as answer:
            lines = answer.iter_lines()
            assert "event: look" in lines
            process.send_signal(signal.SIGINT)
            assert "event: ended" not in lines
        errors = process.stderr.read()
    assert (process.returncode, errors) == (130, "")


def test_a_run_that_there_is_not_is_refused(tmp_path: Path) -> None:
    live = LiveRuns(open_store(str(tmp_path)))

    async def follow() -> None:
        await anext(live.follow("20260101T000000Z-000000"))

    with pytest.raises(RunNotFoundError):
        asyncio.run(follow())


def test_the_page_of_a_run_that_goes_on_has_its_rows_and_follows_it(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, 0, 1)
    with viewer(tmp_path / "store") as client:
        text = client.get(f"/runs/{run.run_id}").text
        assert f'data-events="/runs/{run.run_id}/events"' in text
        assert "2 of 4 items have ended" in text
        assert text.count('class="open"') == 2
        execute(run, 2, 3)
        finish(run)
        text = client.get(f"/runs/{run.run_id}").text
        assert "data-events" not in text
        assert text.count('class="open"') == CASES


def test_the_events_of_a_run_that_has_ended_say_so(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, *range(CASES))
    finish(run)
    with viewer(tmp_path / "store") as client:
        answer = client.get(f"/runs/{run.run_id}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    names = [line for line in answer.text.splitlines() if line.startswith("event:")]
    assert names == ["event: look", "event: ended"]


def mark(run: StoredRun, **changed: object) -> None:
    """Change the manifest of a run as a process that died, or was stopped, leaves it."""
    fields = orjson.loads(run.store.get(run.keys.manifest).data) | changed
    run.store.put(run.keys.manifest, orjson.dumps(fields))


def page_of(client: TestClient, run: StoredRun) -> str:
    return client.get(f"/runs/{run.run_id}").text


def test_a_run_whose_processes_are_gone_says_how_it_goes_on(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, 0)
    put_lease(run, ended_process(), in_flight=(1,))
    with viewer(tmp_path / "store") as client:
        text = page_of(client, run)
    assert f"evalcore run --resume {run.run_id}" in text
    assert "data-events" not in text


def test_a_cancelled_run_says_how_what_is_missing_is_executed(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, 0)
    mark(run, state="cancelled", ended_at=run.manifest().created_at)
    with viewer(tmp_path / "store") as client:
        text = page_of(client, run)
    assert "This run was cancelled" in text
    assert f"evalcore run --resume {run.run_id}" in text


def test_a_damaged_run_says_what_is_damaged(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, *range(CASES))
    finish(run)
    run.store.delete(run.keys.result(2))
    with viewer(tmp_path / "store") as client:
        page = client.get(f"/runs/{run.run_id}")
    assert page.status_code == 409
    assert "shard 2" in page.text


@pytest.mark.parametrize(("dropped", "reason"), [(False, "shard 0"), (True, "were dropped")])
def test_a_run_that_loses_results_while_it_is_open_says_so(
    dropped: bool, reason: str, tmp_path: Path
) -> None:
    run = planned_run(tmp_path)
    execute(run, *range(CASES))
    finish(run)
    with viewer(tmp_path / "store") as client:
        assert client.get(f"/runs/{run.run_id}").status_code == 200
        for shard in range(CASES):
            run.store.delete(run.keys.result(shard))
        if dropped:
            run.store.put(run.keys.results_dropped, b"{}")
        pages = [client.get(f"/runs/{run.run_id}/assertions") for _ in range(2)]
    assert [page.status_code for page in pages] == [409, 409]
    assert all(reason in page.text for page in pages)


@pytest.mark.parametrize(
    ("address", "is_linked"),
    [("http://127.0.0.1:4200/runs/flow-run/x", True), ("javascript:alert(1)", False)],
)
def test_a_flow_run_is_linked_where_a_browser_may_follow(
    tmp_path: Path, address: str, is_linked: bool
) -> None:
    run = planned_run(tmp_path)
    mark(run, execution={"flow_run_url": address})
    with viewer(tmp_path / "store") as client:
        text = page_of(client, run)
    assert (f'href="{address}"' in text) is is_linked
    assert address in text or not is_linked

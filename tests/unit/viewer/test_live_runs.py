"""A run that goes on: what its page shows, and the events that its viewers are sent."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from starlette.testclient import TestClient

from evalcore.storage.runs import StoredRun
from tests.support.leases import ended_process, put_lease
from tests.support.live_run import CASES, execute, finish, planned_run
from tests.support.viewer import viewer


def test_the_looks_at_a_run_follow_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalcore.viewer.site._LOOK_EVERY_S", 0.0)
    run = planned_run(tmp_path)
    with viewer(tmp_path / "store") as client:

        def look() -> tuple[str, int]:
            answer = client.get(f"/runs/{run.run_id}/look.json").json()
            return answer["state"], answer["items"]["done"]

        assert look() == ("running", 0)
        execute(run, 0, 1)
        assert look() == ("running", 2)
        execute(run, 2, 3)
        finish(run)
        assert look() == ("completed", CASES)
        assert client.get("/runs/20260101T000000Z-000000/look.json").status_code == 404


def test_the_page_of_a_run_that_goes_on_has_its_rows_and_follows_it(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    execute(run, 0, 1)
    with viewer(tmp_path / "store") as client:
        text = client.get(f"/runs/{run.run_id}").text
        assert f'data-look="/runs/{run.run_id}/look.json"' in text
        assert "2 of 4 items have ended" in text
        assert text.count('class="open"') == 2
        execute(run, 2, 3)
        finish(run)
        text = client.get(f"/runs/{run.run_id}").text
        assert "data-look" not in text
        assert text.count('class="open"') == CASES


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
    assert "data-look" not in text


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

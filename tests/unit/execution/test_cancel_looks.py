"""How often a lane looks for CANCEL: every second, unless very many lanes would."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from evalcore.execution.lanes import lease_renewer
from evalcore.execution.lanes.claims import Claims
from evalcore.execution.lanes.lease_renewer import (
    CANCEL_LOOKS_PER_S,
    LeaseRenewer,
    cancel_look_s,
)
from evalcore.model.run import Plan
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore
from tests.support.counting_store import CountingStore

PLAN = Plan(120, 120, 1, 1, 12, 10, 1, 120)


def opened(store: ObjectStore) -> StoredRun:
    run = open_run(store, "s", "20260518T100000Z-0a1b2c")
    store.put(run.keys.manifest, b"{}")
    return run


@pytest.mark.parametrize(
    ("lanes", "lease_s", "is_idle", "expected"),
    [
        (1, 20.0, False, 1.0),
        (500, 20.0, False, 1.0),
        (1_000, 20.0, False, 2.0),
        (10_000, 20.0, False, 20.0 / 3),
        (10_000, 60.0, False, 20.0),
        (4, 20.0, True, 3.0),
        (3_000, 20.0, True, 6.0),
        (4, 0.3, False, 0.1),
    ],
)
def test_interval(lanes: float, lease_s: float, is_idle: bool, expected: float) -> None:
    assert cancel_look_s(lanes, lease_s, is_idle=is_idle) == pytest.approx(expected)


@pytest.mark.parametrize("lanes", [1, 100, 500, 1_000, 3_000])
def test_all_lanes_together_ask_no_more_often_than_the_bound(lanes: int) -> None:
    assert lanes / cancel_look_s(lanes, 20.0) <= CANCEL_LOOKS_PER_S


def test_the_lanes_of_a_run_are_counted_by_their_claims(tmp_path: Path) -> None:
    run = opened(LocalStore(tmp_path))
    others = Claims(run, "other", PLAN)
    for shard in range(4):
        assert others.claim(shard)
    claims = Claims(run, "mine", PLAN)
    claims.look()
    assert claims.busy_lanes == 4
    for shard in (4, 5):
        assert claims.claim(shard)
    assert claims.busy_lanes == 3


@pytest.mark.parametrize(
    ("store", "expected"), [(LocalStore, 1.0), (CountingStore, 200.0)], ids=["folder", "remote"]
)
def test_only_a_remote_store_is_asked_less_often(
    store: type[LocalStore], expected: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_renewer, "CANCEL_LOOKS_PER_S", 0.001)
    run = opened(store(tmp_path))
    claims = Claims(run, "mine", PLAN, lease_s=600)
    assert claims.claim(0)
    assert LeaseRenewer(run, claims, lambda: None).look_after_s() == expected


def test_cancel_is_noticed_once(tmp_path: Path) -> None:
    run = opened(CountingStore(tmp_path))
    claims = Claims(run, "mine", PLAN, lease_s=0.06)
    assert claims.claim(0)
    noticed, calls = threading.Event(), list[int]()

    def cancelled() -> None:
        calls.append(1)
        noticed.set()

    with LeaseRenewer(run, claims, cancelled):
        run.request_cancel()
        assert noticed.wait(60)
        sequence = claims.lease(0)
        # It goes on to renew what is still held.
        while claims.lease(0) == sequence:
            threading.Event().wait(0.01)
    assert calls == [1]

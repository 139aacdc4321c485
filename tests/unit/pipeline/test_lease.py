"""The lease of a run: who may coordinate it, and what a dead holder leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Queue

import pytest

from evalcore.errors import StoreError
from evalcore.model.run import Plan, State
from evalcore.pipeline import lease
from evalcore.pipeline.lease import (
    HeldLease,
    LeaseLostError,
    LeaseWatch,
    RunHeldError,
    is_interrupted,
    read_lease,
    take_lease,
)
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.processes import ProcessId, this_process
from tests.support.leases import ended_process, process_elsewhere, put_lease
from tests.support.stored_manifests import put_manifest

PLAN = Plan(40, 40, 1, 1, shards=4, shard_size=10, parts=1, part_cases=40)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    run_id = "20260518T100000Z-aaaaaa"
    return put_manifest(LocalStore(tmp_path), run_id, state=State.RUNNING, plan=PLAN, parts=None)


class Waited:
    """A clock, and what a waiting process says; something happens when it waits."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now, self.said = 0.0, list[str]()
        self._meanwhile = meanwhile

    def __call__(self) -> float:
        self.now += 0.4
        if self.now > 1:
            self._meanwhile()
        return self.now

    def say(self, text: str) -> None:
        self.said.append(text)


def take(
    run: StoredRun,
    first: tuple[int, ...] = (0,),
    *,
    lease_s: float = 20.0,
    waited: Waited | None = None,
    interrupted: Callable[[], None] = lambda: None,
) -> HeldLease:
    waited = waited or Waited()
    return take_lease(
        run,
        PLAN,
        lease_s=lease_s,
        first=first,
        say=waited.say,
        interrupted=interrupted,
        clock=waited,
    )


def test_the_first_process_takes_the_first_epoch_and_releases_it(run: StoredRun) -> None:
    with take(run) as held:
        held.begin([0, 1, 2])
        held.end(0)
        held.begin([3])
        stored = read_lease(run)
        assert stored is not None
        assert (stored.epoch, stored.in_flight, stored.released) == (1, (1, 2, 3), False)
        assert stored.holder == this_process()
    stored = read_lease(run)
    assert stored is not None
    assert (stored.epoch, stored.in_flight, stored.released) == (1, (), True)


def test_shards_that_are_handed_out_again_cost_no_request(run: StoredRun) -> None:
    with take(run, (0, 1)) as held:
        before = run.store.get(run.keys.lease).etag
        held.begin([0, 1])
        assert run.store.get(run.keys.lease).etag == before


def test_a_released_lease_is_taken_with_the_next_epoch_and_nobody_has_died(run: StoredRun) -> None:
    with take(run) as first:
        began = first.now.began
    with take(run) as second:
        assert (second.now.epoch, second.now.repeated, second.now.deaths.get(0, 0)) == (2, 0, 0)
        assert second.now.began == began


def test_a_process_that_ended_is_replaced_at_once_and_its_shards_have_a_death(
    run: StoredRun,
) -> None:
    put_lease(run, ended_process(), epoch=3, in_flight=(1, 2), deaths={1: 1}, repeated=10)
    run.store.put_if_absent(run.keys.result(2), b"rows")

    waited = Waited()
    with take(run, (1,), waited=waited) as held:
        # Shard 2 was committed before its holder died.
        assert (held.now.deaths.get(1, 0), held.now.deaths.get(2, 0)) == (2, 0)
        assert (held.now.epoch, held.now.repeated) == (4, 20)
    assert waited.said == []


def test_a_process_of_this_run_that_died_is_a_death_of_its_shard(run: StoredRun) -> None:
    with take(run, (0, 1)) as held:
        held.note_repeated(1, PLAN, died=True)
        stored = read_lease(run)
        assert stored is not None
        assert (stored.in_flight, stored.deaths, stored.repeated) == ((0,), {1: 1}, 10)


def test_a_process_that_lives_is_named_and_not_replaced(run: StoredRun) -> None:
    stored = put_lease(run, this_process(), epoch=2)
    with pytest.raises(RunHeldError) as refused:
        take(run)
    text = str(refused.value)
    assert f"process {stored.holder.pid} on {stored.holder.host}" in text
    assert stored.renewed in text
    assert f"evalcore runs cancel {run.run_id}" in text
    assert read_lease(run) == stored


def test_a_process_elsewhere_is_replaced_after_two_leases_without_a_renewal(
    run: StoredRun,
) -> None:
    put_lease(run, process_elsewhere(), lease_s=1.0, in_flight=(1,))
    waited = Waited()
    with take(run, waited=waited) as held:
        assert (held.now.epoch, held.now.deaths.get(1, 0)) == (2, 1)
    assert waited.now >= 2
    (text,) = waited.said
    assert "process 1234 on elsewhere.example" in text
    assert "waiting 2 s" in text


def test_a_process_elsewhere_that_renews_its_lease_meanwhile_keeps_it(run: StoredRun) -> None:
    def renew() -> None:
        put_lease(run, process_elsewhere(), lease_s=1.0, renewed="2026-05-18T10:00:09Z")

    put_lease(run, process_elsewhere(), lease_s=1.0, renewed="2026-05-18T10:00:00Z")
    with pytest.raises(RunHeldError, match="10:00:09Z"):
        take(run, waited=Waited(renew))


class Meanwhile(LocalStore):
    """A store where another process is quicker, once."""

    happens: Callable[[], object] | None = None

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().put_if_absent(key, data)


def test_of_two_that_begin_at_once_one_is_refused(run: StoredRun, tmp_path: Path) -> None:
    store = Meanwhile(tmp_path)
    store.happens = lambda: put_lease(run, this_process())
    with pytest.raises(RunHeldError):
        take(replace(run, store=store))


def test_who_has_lost_the_lease_is_told_and_begins_nothing(run: StoredRun) -> None:
    told = threading.Event()
    with take(run, lease_s=0.1, interrupted=told.set) as held:
        taken = put_lease(run, process_elsewhere(), epoch=2)
        assert told.wait(60)
        assert isinstance(held.lost, LeaseLostError)
        with pytest.raises(LeaseLostError, match="taken over by another process"):
            held.begin([1])
    assert read_lease(run) == taken  # nothing was released


def test_a_holder_renews_its_lease(run: StoredRun) -> None:
    with take(run, lease_s=0.1):
        first = read_lease(run)
        until = datetime.now(UTC) + timedelta(seconds=60)
        while read_lease(run) == first:
            assert datetime.now(UTC) < until
            threading.Event().wait(0.01)


def test_a_cancelled_run_interrupts_its_holder(run: StoredRun) -> None:
    told = threading.Event()
    with take(run, lease_s=0.1, interrupted=told.set) as held:
        run.request_cancel()
        assert told.wait(60)
        assert held.cancelled
        assert held.lost is None


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"epoch": 1}', b'"x"', b'{"deaths": []}'],
    ids=["empty", "list", "object", "cut-off", "text", "other-types"],
)
def test_a_damaged_lease_is_named_and_what_to_do(run: StoredRun, data: bytes) -> None:
    run.store.put(run.keys.lease, data)
    with pytest.raises(StoreError, match=rf"{run.keys.lease} is damaged: delete it once"):
        take(run)


@pytest.mark.parametrize(
    ("holder", "changed", "seconds", "interrupted"),
    [
        (this_process(), {}, 86_400, False),
        (ended_process(), {}, 0, True),
        (ended_process(), {"released": True}, 59, False),
        (ended_process(), {"released": True}, 61, True),
        (process_elsewhere(), {}, 119, False),
        (process_elsewhere(), {}, 121, True),
        (process_elsewhere(), {"lease_s": 100.0}, 121, False),
    ],
    ids=[
        "lives",
        "ended",
        "decides",
        "ended-before-it-decided",
        "elsewhere",
        "silent-elsewhere",
        "elsewhere-with-a-long-lease",
    ],
)
def test_a_run_is_interrupted_once_no_process_executes_it(
    run: StoredRun,
    holder: ProcessId,
    changed: dict[str, float],
    seconds: int,
    interrupted: bool,
) -> None:
    stored = put_lease(run, holder, **changed)
    moment = datetime.fromisoformat(stored.renewed) + timedelta(seconds=seconds)
    assert is_interrupted(run, run.manifest(), now=moment) is interrupted


@pytest.mark.parametrize(("minutes", "interrupted"), [(14, False), (16, True)])
def test_a_run_that_nobody_has_begun_is_interrupted_after_a_while(
    run: StoredRun, minutes: int, interrupted: bool
) -> None:
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    assert is_interrupted(run, run.manifest(), now=moment) is interrupted


def test_a_completed_run_is_not_interrupted(run: StoredRun) -> None:
    put_lease(run, ended_process())
    completed = replace(run.manifest(), state=State.COMPLETED)
    assert not is_interrupted(run, completed, now=datetime.now(UTC))


@pytest.fixture
def watched(run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue[str]]:
    """Watch the lease of epoch 1, which a process elsewhere holds; return the reasons to end."""
    monkeypatch.setattr(lease, "LOOK_S", 0.02)
    put_lease(run, process_elsewhere(), lease_s=60.0)
    ended: Queue[str] = Queue()
    watch = LeaseWatch(run, 1, ended.put)
    yield ended
    watch.close()


def test_a_process_that_helps_ends_when_the_run_is_cancelled(
    run: StoredRun, watched: Queue[str]
) -> None:
    run.request_cancel()
    assert watched.get(timeout=60) == "the run was cancelled"


@pytest.mark.parametrize("changed", [{"epoch": 2}, {"released": True}], ids=["taken", "released"])
def test_a_process_that_helps_ends_with_the_epoch_of_its_call(
    run: StoredRun, watched: Queue[str], changed: dict[str, int]
) -> None:
    put_lease(run, process_elsewhere(), **changed)
    assert watched.get(timeout=60) == "another process coordinates the run"


def test_a_process_that_helps_ends_when_the_lease_is_not_renewed(
    run: StoredRun, watched: Queue[str]
) -> None:
    put_lease(run, process_elsewhere(), lease_s=0.1)
    assert watched.get(timeout=60) == (
        "the process that coordinates the run renews its lease no more"
    )

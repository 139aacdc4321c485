"""Workers of a cluster that hang: their heartbeat does not change."""

from __future__ import annotations

from flows.worker_heartbeats import WorkerHeartbeats


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_worker_whose_heartbeat_does_not_change_is_silent() -> None:
    clock = Clock()
    heartbeats = WorkerHeartbeats(clock)
    silent: list[tuple[str, ...]] = []
    for second in range(6):
        clock.now = 100.0 + second
        silent.append(heartbeats.silent({"hangs": 7.0, "lives": 7.0 + second}, after_s=4.0))
    assert silent == [(), (), (), (), ("hangs",), ("hangs",)]


def test_a_worker_that_goes_on_is_not_silent_any_more() -> None:
    clock = Clock()
    heartbeats = WorkerHeartbeats(clock)
    for second in range(5):
        clock.now = 100.0 + second
        heartbeats.silent({"paused": 7.0}, after_s=4.0)
    assert heartbeats.silent({"paused": 8.0}, after_s=4.0) == ()


def test_workers_are_not_silent_because_their_scheduler_was() -> None:
    clock = Clock()
    heartbeats = WorkerHeartbeats(clock)
    heartbeats.silent({"lives": 7.0}, after_s=4.0)
    clock.now += 60.0
    assert heartbeats.silent({"lives": 7.0}, after_s=4.0) == ()

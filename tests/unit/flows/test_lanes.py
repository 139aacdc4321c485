"""How many lanes a run is given: by how much there is to do, which history and pilots tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evalcore.model.run import Manifest
from evalcore.pipeline.execute import execute_run, execute_shards, settle_plan
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.trust.imports import ImportPolicy
from flows.lanes import RemainingWork, choose_lanes, work_left
from tests.support.worker_runs import now, plan_shared, write_suite

ITEMS = 1_500
# What stands in the suite of `write_suite`.
AT_ONCE = 4


@pytest.mark.parametrize(
    ("items", "seconds", "wanted", "has_pool", "lanes"),
    [
        pytest.param(1_000, 600.0, 0, True, 0, id="few items"),
        pytest.param(50_000, 50.0, 0, True, 0, id="a minute of work"),
        pytest.param(2_000, 600.0, 0, False, 0, id="no work pool"),
        pytest.param(2_000, 100.0, 0, True, 2, id="more work"),
        pytest.param(100_000, 1_200.0, 0, True, 4, id="much work"),
        pytest.param(1_000_000, 1e6, 0, True, 8, id="very much work"),
        pytest.param(10, 1.0, 3, True, 3, id="asked for"),
    ],
)
def test_the_rule_chooses_between_shard_tasks_and_lanes(
    items: int, seconds: float, wanted: int, has_pool: bool, lanes: int
) -> None:
    assert choose_lanes(RemainingWork(items, seconds), lanes=wanted, has_pool=has_pool) == lanes


def add_cases(folder: Path) -> None:
    with (folder / "cases.jsonl").open("a") as file:
        for number in range(40, ITEMS):
            file.write(json.dumps({"id": f"case-{number:04}", "input": f"r of {number}"}) + "\n")


def test_nobody_knows_how_long_the_items_of_a_new_suite_take(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, items=ITEMS)
    run = plan_shared(suite, LocalStore(tmp_path / "store"))
    assert work_left(run, None) == RemainingWork(ITEMS, ITEMS / AT_ONCE)
    assert work_left(run, 100) == RemainingWork(ITEMS, ITEMS / 100)


def test_items_take_as_long_as_in_the_last_run_of_the_suite(tmp_path: Path) -> None:
    suite, store = write_suite(tmp_path, items=40, sleep_s=0.02), LocalStore(tmp_path / "store")
    options = ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,)))
    earlier = plan_shared(suite, store)
    with finish_run(earlier, execute_run(earlier, options), now=now()):
        add_cases(tmp_path)
    work = work_left(plan_shared(suite, store), None)
    assert work.items == ITEMS
    assert ITEMS / AT_ONCE * 0.02 <= work.seconds < ITEMS / AT_ONCE * 0.2


def test_items_take_as_long_as_the_pilot_has_shown(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, items=ITEMS, sleep_s=0.02)
    run = plan_shared(suite, LocalStore(tmp_path / "store"))
    plan = run.manifest().plan
    pilot = plan.pilot
    assert pilot
    execute_shards(run, plan, (0,), ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,))))
    assert settle_plan(run, run.manifest()).settled
    work = work_left(run, None)
    assert work.items == ITEMS - pilot
    assert work.items / AT_ONCE * 0.02 <= work.seconds < work.items / AT_ONCE * 0.2


def test_what_is_committed_is_not_to_be_done_again(tmp_path: Path) -> None:
    suite, store = write_suite(tmp_path, items=40, sleep_s=0), LocalStore(tmp_path / "store")
    run = plan_shared(suite, store)
    execute_run(run, ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,))))

    def slow(manifest: Manifest) -> Manifest:
        return replace(manifest, settings={**manifest.settings, "latency_s": 60.0})

    run.update(slow)
    assert work_left(replace(run, seal=None), None) == RemainingWork(0, 0.0)

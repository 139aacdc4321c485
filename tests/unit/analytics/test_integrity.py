"""A damaged run is told as damaged: the object, what would work; never read as a smaller one.

`tests/integration/test_damage.py` has what commands say of it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

import pytest

from evalcore.analytics.integrity import check_run, verify_run, whole_parts
from evalcore.errors import DamagedRunError, ResultsDroppedError, StoreError
from evalcore.formats.registry import load_suite
from evalcore.history.query import ask, item_relation
from evalcore.pipeline import plan as plan_module
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run, view_run
from evalcore.pipeline.plan import plan_run
from evalcore.planning import spool as spool_module
from evalcore.storage.layout import RunKeys, suite_key
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, list_all_runs
from tests.support.damaging import (
    CASES,
    OF_MANIFESTS,
    OF_PLANS,
    OF_ROWS,
    PARTS,
    Damage,
    manifest,
    of_part,
    part,
)

NOW = datetime(2026, 5, 20, 10, tzinfo=UTC)
SHARDS = (0, 1, 3)
REMEDIES = "--repair`|restore it from a copy"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Stores with a completed run, and with one that was executed and has not ended."""
    folder = tmp_path_factory.mktemp("integrity")
    tests = [
        {"id": f"c{n}", "input": f"q{n}", "fixtures": {"output": f"answer {n}"}}
        for n in range(CASES)
    ]
    check = {"type": "contains", "value": "answer"}
    whole = {"name": "damaged", "tests": tests, "assertions": [check]}
    path = folder / "suite.eval.json"
    path.write_text(json.dumps({**whole, "evalcore": {"iterations": 2}}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "PART_CASES", 20)
        patch.setattr(plan_module, "PART_CASES", 20)
        patch.setattr(plan_module, "_MIN_LOCAL_SHARD_ITEMS", 1)
        for name in ("ended", "executed"):
            run = plan_run(load_suite(path), LocalStore(folder / name), now=NOW)
            execute_run(run)
            if name == "ended":
                with finish_run(run, now=NOW):
                    pass
        yield folder


def copy_of(stores: Path, name: str, folder: Path) -> tuple[StoredRun, Path]:
    shutil.copytree(stores / name, folder / "store", symlinks=True)
    store = LocalStore(folder / "store")
    (path,) = (folder / "store" / "runs" / "damaged").iterdir()
    (listed,) = list_all_runs(store)
    return StoredRun(store, run_keys(listed.id)), path


def run_keys(run_id: str) -> RunKeys:
    return RunKeys(suite_key("damaged"), run_id)


def assert_named(run: StoredRun, *parts: str) -> None:
    """The damage is told with one of these names by everything that reads the run."""
    damages = verify_run(run)
    assert {damage.part for damage in damages}.intersection(parts), damages
    assert all(damage.reason for damage in damages)
    assert re.search(REMEDIES, str(DamagedRunError(run.run_id, damages)))
    with pytest.raises(DamagedRunError, match=REMEDIES), view_run(run):
        pass


@pytest.mark.parametrize(("name", "shard"), zip(PARTS, cycle(SHARDS)))
def test_a_damaged_part_is_named(stores: Path, tmp_path: Path, name: str, shard: int) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    of_part(name, shard)(folder)
    assert_named(run, f"shard {shard}")


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_part_of_a_run_that_has_not_ended_is_named_by_its_rows(
    stores: Path, tmp_path: Path, name: str
) -> None:
    run, folder = copy_of(stores, "executed", tmp_path)
    assert not verify_run(run)
    of_part(name)(folder)
    assert [damage.part for damage in verify_run(run)] == ["shard 1"]
    with pytest.raises(DamagedRunError, match="shard 1 "), finish_run(run, now=NOW):
        pass


@pytest.mark.parametrize("damage", OF_MANIFESTS.values(), ids=OF_MANIFESTS)
def test_a_damaged_manifest_is_named(stores: Path, tmp_path: Path, damage: Damage) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    damage(folder)
    assert_named(run, "manifest.json", "shard 0", "shard 2")


@pytest.mark.parametrize("damage", OF_PLANS.values(), ids=OF_PLANS)
def test_a_damaged_plan_is_named(stores: Path, tmp_path: Path, damage: Damage) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    before = {path: path.read_bytes() for path in (folder / "plan").iterdir()}
    damage(folder)
    after = {path: path.read_bytes() for path in (folder / "plan").iterdir()}
    changed = {path.name for path in before | after if before.get(path) != after.get(path)}
    assert_named(run, *(f"plan/{name}" for name in changed))


def test_a_whole_run_has_no_damage(stores: Path, tmp_path: Path) -> None:
    run, _ = copy_of(stores, "ended", tmp_path)
    assert verify_run(run) == ()
    with view_run(run) as view:
        assert view.report.summary.counts.passed == 2 * CASES


def test_a_decision_that_the_report_does_not_have_is_named(stores: Path, tmp_path: Path) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    manifest(lambda raw: raw.update(decision="fail"))(folder)
    (damage,) = verify_run(run)
    assert str(damage) == "manifest.json says 'fail'; report.json says 'pass'"


@pytest.mark.parametrize(("data", "reason"), [(None, "is missing"), (b"{", "is no report")])
def test_a_damaged_report_is_named(
    stores: Path, tmp_path: Path, data: bytes | None, reason: str
) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    (folder / "report.json").unlink()
    if data is not None:
        (folder / "report.json").write_bytes(data)
    (damage,) = verify_run(run)
    assert str(damage).startswith(f"report.json {reason}")


def test_a_manifest_of_a_later_version_is_named(stores: Path, tmp_path: Path) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    manifest(lambda raw: raw.update(schema=7))(folder)
    with pytest.raises(StoreError, match="has schema 7; this version reads 1"):
        verify_run(run)


def test_every_damage_is_told(stores: Path, tmp_path: Path) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    of_part("torn", 0)(folder)
    of_part("deleted", 2)(folder)
    OF_PLANS["the first cases: torn"](folder)
    assert [damage.part for damage in verify_run(run)] == [
        "plan/cases-00000.jsonl.zst",
        "shard 0",
        "shard 2",
    ]


def test_a_part_that_goes_while_it_is_read_is_damage(stores: Path, tmp_path: Path) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)

    def read() -> None:
        with whole_parts(run, run.manifest()) as parts:
            part(folder).unlink()
            parts[1].read_bytes()

    with pytest.raises(DamagedRunError, match="shard 1 has no result"):
        read()


@pytest.mark.parametrize("name", ["torn", "deleted", "a row doubled"])
def test_a_damaged_run_has_no_items(stores: Path, tmp_path: Path, name: str) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    sql = "SELECT count(*) FROM items('latest')"
    with ask(run.store, sql) as answer:
        assert next(answer.batches()) == [(2 * CASES,)]
    of_part(name)(folder)
    with pytest.raises(DamagedRunError, match="shard 1 "), ask(run.store, sql):
        pass
    with pytest.raises(DamagedRunError, match="shard 1 "):
        item_relation(run)


def test_dropped_results_are_told_as_dropped(stores: Path, tmp_path: Path) -> None:
    run, folder = copy_of(stores, "ended", tmp_path)
    shutil.rmtree(folder / "results")
    run.store.put(run.keys.results_dropped, b"{}")
    assert verify_run(run) == ()
    with pytest.raises(ResultsDroppedError):
        check_run(run)
    with pytest.raises(ResultsDroppedError), view_run(run):
        pass
    with pytest.raises(ResultsDroppedError), ask(run.store, "FROM items('latest')"):
        pass

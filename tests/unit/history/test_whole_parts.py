"""The rows of a run are all there or none is shown: `items('RUN')` and `SuiteReport.rows()`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from evalcore.errors import DamagedRunError, ResultsDroppedError
from evalcore.history.query import ask, item_relation
from evalcore.history.whole_parts import check_parts
from evalcore.storage.local import LocalStore
from evalcore.storage.run_names import choose_run
from tests.support.history_stores import case_of, end_run, stop_run, suite_of

CASES = tuple(case_of(number) for number in range(3))


def remove(parts: list[Path]) -> None:
    parts[0].unlink()


def truncate(parts: list[Path]) -> None:
    parts[0].write_bytes(parts[0].read_bytes()[:100])


def repeat(parts: list[Path]) -> None:
    shutil.copyfile(parts[0], parts[-1])


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def parts(store: LocalStore, tmp_path: Path) -> list[Path]:
    run = stop_run(store, suite_of(CASES))  # a shard for each item
    end_run(store, run, day=1)
    return sorted((tmp_path / "store").glob("runs/*/*/results/*.parquet"))


@pytest.mark.parametrize("damage", [remove, truncate, repeat])
def test_a_damaged_run_has_no_items(
    damage: Callable[[list[Path]], None], parts: list[Path], store: LocalStore
) -> None:
    assert len(parts) > 1
    sql = "SELECT count(*) FROM items('latest')"
    with ask(store, sql) as answer:
        assert next(answer.batches()) == [(3,)]
    damage(parts)
    with pytest.raises(DamagedRunError, match="shard"), ask(store, sql):
        pass
    with pytest.raises(DamagedRunError, match="shard"):
        item_relation(choose_run(store, "latest"))


def test_a_part_that_goes_after_it_was_listed_is_damage(
    parts: list[Path], store: LocalStore
) -> None:
    run = choose_run(store, "latest")
    parts[1].unlink()
    with pytest.raises(DamagedRunError, match="shard 1 has no result"):
        check_parts(run.manifest(), dict(enumerate(parts)))


def test_dropped_results_are_named_as_dropped(parts: list[Path], store: LocalStore) -> None:
    run = choose_run(store, "latest")
    for part in parts:
        part.unlink()
    store.put(run.keys.results_dropped, b"{}")
    with pytest.raises(ResultsDroppedError), ask(store, "FROM items('latest')"):
        pass

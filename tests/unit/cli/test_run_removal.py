"""Runs go only when nothing else needs them, and only when that was confirmed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evalcore.cli.keep import baseline
from evalcore.cli.runs import runs
from evalcore.history.query import ask
from evalcore.model.run import State
from evalcore.storage.local import LocalStore
from tests.support.history_runs import run_outputs
from tests.support.stored_manifests import put_manifest

INTERRUPTED = "20200101T000000Z-aaaaaa"
RUNNING: dict[str, Any] = {"state": State.RUNNING, "decision": None, "counts": None,
                           "ended_at": None}  # fmt: skip


def invoke(store: LocalStore, *arguments: str) -> Result:
    address = store.url.removeprefix("file://")
    return CliRunner().invoke(runs, [*arguments, "--store", address])


def listed(store: LocalStore) -> list[str]:
    return [run["id"] for run in json.loads(invoke(store, "list", "--json").stdout)]


@pytest.fixture(scope="module")
def five_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with four runs of `support` and one of `other`; no test may change it."""
    folder = tmp_path_factory.mktemp("runs")
    store = LocalStore(folder / "store")
    for output in ("good", "good", "bad", "good"):
        run_outputs(store, folder, {"a": output})
    run_outputs(store, folder, {"a": "good"}, name="other")
    return folder / "store"


@pytest.fixture
def store(five_runs: Path, tmp_path: Path) -> LocalStore:
    """Return a copy of the store with five runs."""
    return LocalStore(shutil.copytree(five_runs, tmp_path / "store"))


def test_deleting_lists_first_and_deletes_with_yes(store: LocalStore) -> None:
    newest, *others = listed(store)
    preview = json.loads(invoke(store, "delete", *others, "--json").stdout)
    assert preview == {"deleted": False, "runs": others}
    assert listed(store) == [newest, *others]
    assert json.loads(invoke(store, "delete", *others, "--json", "--yes").stdout)["deleted"]
    assert listed(store) == [newest]
    # The history still has all of them.
    with ask(store, "SELECT count(*) FROM runs") as answer:
        assert next(answer.batches()) == [(5,)]


def test_what_is_needed_stays(store: LocalStore) -> None:
    address = store.url.removeprefix("file://")
    *_, second, first = listed(store)
    set_baseline = ["set", "support", first, "--store", address]
    assert CliRunner().invoke(baseline, set_baseline).exit_code == 0
    put_manifest(store, INTERRUPTED, "support", **RUNNING)
    frozen = {"baseline": {"name": None, "suite": "support", "run": second}}
    put_manifest(store, "20990101T000000Z-bbbbbb", "support", settings=frozen)
    before = listed(store)
    reasons = {
        first: "it is a baseline; `evalcore baseline clear` first",
        second: "run 20990101T000000Z-bbbbbb was compared with it",
        INTERRUPTED: "it is running",
    }
    for run, reason in reasons.items():
        refused = invoke(store, "delete", run, before[1], "--yes")
        assert f"nothing is deleted: {run}: {reason}" in str(refused.exception)
    assert listed(store) == before


def test_runs_are_deleted_by_any_name_whole(store: LocalStore) -> None:
    newest = listed(store)[1]
    assert "would be deleted" in invoke(store, "delete", "support/latest").stderr
    assert newest in listed(store)
    assert invoke(store, "delete", "support/latest", "--yes").exit_code == 0
    assert newest not in listed(store)
    assert list(store.list(f"runs/support/{newest}/")) == []


def test_a_damaged_run_is_deleted_by_its_id(store: LocalStore) -> None:
    run = "20200102T000000Z-cccccc"
    store.put(f"runs/support/{run}/manifest.json", b"{")
    assert invoke(store, "delete", run, "--yes").exit_code == 0
    assert list(store.list(f"runs/support/{run}/")) == []

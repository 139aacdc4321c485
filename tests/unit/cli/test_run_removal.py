"""Runs go only when nothing else needs them, and only when that was confirmed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evalcore.cli.baseline import baseline
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


def test_pruning_lists_first_and_deletes_with_yes(store: LocalStore) -> None:
    before = listed(store)
    support = [run for run in before if run != before[0]]
    preview = json.loads(invoke(store, "prune", "--keep", "1", "--json").stdout)
    assert preview == {"deleted": False, "runs": support[1:], "kept": []}
    assert listed(store) == before
    done = json.loads(invoke(store, "prune", "--keep", "1", "--json", "--yes").stdout)
    assert done["deleted"]
    assert listed(store) == before[:2]
    # The history still has all of them.
    with ask(store, "SELECT count(*) FROM runs") as answer:
        assert next(answer.batches()) == [(5,)]


def test_what_is_needed_stays(store: LocalStore, tmp_path: Path) -> None:
    address = store.url.removeprefix("file://")
    *_, second, first = listed(store)
    set_baseline = ["set", "support", first, "--store", address]
    assert CliRunner().invoke(baseline, set_baseline).exit_code == 0
    put_manifest(store, INTERRUPTED, "support", **RUNNING)
    frozen = {"baseline": {"name": None, "suite": "support", "run": second}}
    put_manifest(store, "20990101T000000Z-bbbbbb", "support", settings=frozen)
    store.put("runs/support/20200102T000000Z-cccccc/manifest.json", b"{")
    document = json.loads(invoke(store, "prune", "--keep", "2", "--json", "--yes").stdout)
    reasons = {entry["run"]: entry["reason"] for entry in document["kept"]}
    assert reasons[first] == "it is a baseline; `evalcore baseline clear` first"
    assert reasons[second] == "run 20990101T000000Z-bbbbbb was compared with it"
    assert "it is running" in reasons[INTERRUPTED]
    assert "damaged" in reasons["20200102T000000Z-cccccc"]
    assert len(document["runs"]) == 1
    for run in (first, second):
        refused = invoke(store, "delete", run, "--yes")
        assert refused.exception is not None
        assert "nothing is deleted" in str(refused.exception)
    assert {first, second} <= set(listed(store))


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


def test_a_rule_is_needed_and_ages_are_respected(store: LocalStore) -> None:
    refused = invoke(store, "prune", "--yes")
    assert "--keep N or --older-than" in str(refused.exception)
    assert json.loads(invoke(store, "prune", "--older-than", "1h", "--json").stdout)["runs"] == []
    both = invoke(store, "prune", "--older-than", "1h", "--keep", "1", "--json", "--yes")
    assert json.loads(both.stdout)["runs"] == []
    assert invoke(store, "prune", "--older-than", "soon").exit_code == 2

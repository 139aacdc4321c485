"""Every name of a run means one run, or the message says which ones it could mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import RunNotFoundError, UsageError
from evalcore.model.run import State
from evalcore.storage.local import LocalStore
from evalcore.storage.run_names import choose_run, choose_two
from tests.support.stored_manifests import put_manifest

FIRST = "20260518T100000Z-aaaaaa"
FAILED = "20260519T100000Z-bbbbbb"
OTHER = "20260519T110000Z-cccccc"
BRANCH = "20260520T100000Z-dddddd"
KILLED = "20260521T100000Z-eeeeee"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    put_manifest(store, FIRST, settings={"git": {"branch": "main"}})
    put_manifest(store, FAILED, decision="fail")
    put_manifest(store, OTHER, suite="Other/Suite")
    put_manifest(store, BRANCH, decision="fail", settings={"git": {"branch": "fix/it"}})
    put_manifest(store, KILLED, state=State.RUNNING, decision=None, counts=None, ended_at=None)
    return store


@pytest.mark.parametrize(
    ("name", "run_id"),
    [
        (FIRST, FIRST),
        ("latest", KILLED),
        ("last", BRANCH),
        ("last-pass", OTHER),
        ("s/last-pass", FIRST),
        ("Other/Suite/latest", OTHER),
        (f"s/{FIRST}", FIRST),
        ("main", FIRST),
        ("20260518", FIRST),
        ("20260519T11", OTHER),
        ("s/20260519", FAILED),
        ("20260520T100000Z-d", BRANCH),
    ],
)
def test_a_name_means_one_run(store: LocalStore, name: str, run_id: str) -> None:
    assert choose_run(store, name).run_id == run_id


def test_the_candidates_of_an_ambiguous_beginning_are_listed(store: LocalStore) -> None:
    with pytest.raises(UsageError, match=f"beginning of 2 runs: .*{FAILED}.*; write more of one"):
        choose_run(store, "20260519")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("20260518T100000Z-ffffff", "no run '20260518T100000Z-ffffff' in file:"),
        ("2025", "no run '2025' in file:"),
        ("../s", "no run '../s'|no run 's'"),
        ("", "no run ''"),
        ("*", r"no run '\*'"),
        ("unknown/latest", "no run of suite 'unknown' in file:"),
        ("unknown/last-pass", "no run that passed of suite .*; `last` is the newest completed run"),
    ],
)
def test_what_no_run_has_is_refused(store: LocalStore, name: str, message: str) -> None:
    with pytest.raises(RunNotFoundError, match=message):
        choose_run(store, name)


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ("last", "last", (FAILED, BRANCH)),
        ("last-pass", "last", (FIRST, BRANCH)),
        ("main", "20260520", (FIRST, BRANCH)),
        (FAILED, "last", (FAILED, BRANCH)),
        (FIRST, FIRST, (FIRST, FIRST)),
        ("Other/Suite/last", "last", (OTHER, BRANCH)),
        ("20260518", "latest", (FIRST, KILLED)),
        (OTHER, FAILED, (OTHER, FAILED)),
        (OTHER, "latest", (OTHER, OTHER)),
    ],
)
def test_two_names_mean_runs_of_one_suite(
    store: LocalStore, earlier: str, later: str, expected: tuple[str, str]
) -> None:
    first, second = choose_two(store, earlier, later)
    assert (first.run_id, second.run_id) == expected


def test_what_is_left_of_a_deleted_run_is_no_candidate(store: LocalStore) -> None:
    store.delete(f"runs/s/{FAILED}/manifest.json")
    assert choose_run(store, "20260519").run_id == OTHER


def test_a_suites_name_in_place_of_a_runs_is_told_what_to_write(store: LocalStore) -> None:
    with pytest.raises(RunNotFoundError, match=r"'s' is a suite: 's/last' is its newest"):
        choose_run(store, "s")
    with pytest.raises(RunNotFoundError, match=r"`evalcore runs list` shows them$"):
        choose_run(store, "supported")

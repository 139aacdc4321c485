"""What a flow's parameters may name on a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import NotAllowedError
from evalcore.pipeline.acceptance import AcceptingWorker
from evalcore.prefect import states
from evalcore.prefect.parameters import permitted_store, permitted_suite, this_worker
from evalcore.settings import Settings


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's folder, with a suite, a store, and a link to what lies outside."""
    folder = tmp_path / "work"
    for name in ("evals/a.eval.yaml", "store/blobs/aa/b.yaml", "../outside/c.yaml"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("tests: []\n")
    (folder / "link").symlink_to("../outside")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", ["evals/a.eval.yaml", "./evals/../evals/a.eval.yaml"])
def test_a_suite_below_the_workers_folder_may_be_chosen(here: Path, name: str) -> None:
    worker = AcceptingWorker(here, Settings(store="store"))

    assert permitted_suite(name, worker) == here / "evals/a.eval.yaml"
    assert permitted_suite(str(here / name), worker) == here / "evals/a.eval.yaml"


@pytest.mark.parametrize(
    "name",
    [
        "../outside/c.yaml",
        "evals/../../outside/c.yaml",
        "link/c.yaml",
        "/etc/hostname",
        "store/blobs/aa/b.yaml",
        "evals/../store/blobs/aa/b.yaml",
        "stores/team/x.yaml",
        "a\0b",
    ],
)
def test_a_suite_outside_or_in_a_store_may_not(here: Path, name: str) -> None:
    settings = Settings(store="store", allow_stores=("stores", "s3://bucket"))

    with pytest.raises(NotAllowedError):
        permitted_suite(name, AcceptingWorker(here, settings))


def test_a_store_is_the_configured_one_or_an_allowed_one(here: Path) -> None:
    settings = Settings(store="store", allow_stores=("more",))

    assert permitted_store("", settings).url == f"file://{here}/store"
    assert permitted_store(f"file://{here}/store", settings).url == f"file://{here}/store"
    assert permitted_store("more/team", settings).url == f"file://{here}/more/team"
    for address in ("other", "more/../other", "s3://bucket", "../store", "http://user:pw@x/"):
        with pytest.raises(NotAllowedError, match="EVALCORE_ALLOW_STORES") as raised:
            permitted_store(address, settings)
        assert "pw" not in str(raised.value)
    assert not (here / "other").exists()


def test_the_environment_names_stores(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALCORE_STORE", "store")
    monkeypatch.setenv("EVALCORE_ALLOW_STORES", "s3://evals/production, more")

    assert this_worker().settings.allow_stores == ("s3://evals/production", "more")


def test_a_refusal_has_a_state_of_its_own() -> None:
    state = states.refused(NotAllowedError("the store 'x' is not the one of this worker"))

    assert (state.name, state.is_failed()) == ("NotAllowed", True)
    assert state.message == "the store 'x' is not the one of this worker"
    assert states.worst([("a", state), ("b", states.refused(NotAllowedError("y")))]).name == (
        "NotAllowed"
    )

"""Recordings move to a folder and back without a difference, and mistakes in files are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import LoadError, UsageError
from evalcore.model.exchange import ProviderError, Reply, StreamEvent
from evalcore.recording.library import Library, export_folder, import_folder
from evalcore.storage.layout import recording_key
from evalcore.storage.local import LocalStore
from tests.unit.recording.asking import LATER_RUN, RUN, ask, find, recorder, save


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store with two replies and a failure, made by two runs."""
    store = LocalStore(tmp_path / "store")
    events = (StreamEvent(0, 0.1, {"b": 1, "a": 2.0}),)
    save(recorder(store, "record", RUN), ask("one"), Reply("1 🚚", events=events))
    save(recorder(store, "record", LATER_RUN), ask("two"), Reply("2", cost_usd=0.1))
    with pytest.raises(ProviderError):
        save(recorder(store, "record", RUN), ask("three"), ProviderError("server", "no", 500))
    return store


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_set_goes_through_a_folder_into_another_store(store: LocalStore, tmp_path: Path) -> None:
    exported = export_folder(Library(store), tmp_path / "one")
    other = LocalStore(tmp_path / "other")
    assert exported == (3, ())
    assert import_folder(Library(other), tmp_path / "one") == (3, 0, ())
    export_folder(Library(other), tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")
    for text in ("one", "two"):
        there, here = (find(recorder(s, "replay"), ask(text)) for s in (other, store))
        assert there == here
    with pytest.raises(ProviderError, match="no"):
        find(recorder(other, "replay"), ask("three"))


def test_files_are_named_by_key_and_readable(store: LocalStore, tmp_path: Path) -> None:
    export_folder(Library(store), tmp_path / "set")
    for digest in Library(store).digests():
        text = (tmp_path / "set" / f"{digest}.json").read_text("utf-8")
        assert json.loads(text)["key"] == digest
        assert '\n  "identity": {\n' in text


def test_a_run_s_set_is_what_it_recorded(store: LocalStore, tmp_path: Path) -> None:
    assert export_folder(Library(store), tmp_path / "made", run_id=LATER_RUN).files == 1


def test_damaged_recordings_are_left_out_and_named(store: LocalStore, tmp_path: Path) -> None:
    first = next(Library(store).digests())
    store.put(recording_key(first), b"damage")
    assert export_folder(Library(store), tmp_path / "set") == (2, (first,))


def test_importing_again_changes_nothing(store: LocalStore, tmp_path: Path) -> None:
    export_folder(Library(store), tmp_path / "set")
    assert import_folder(Library(store), tmp_path / "set") == (0, 3, ())


def test_another_answer_under_the_same_key_is_told_and_the_stored_one_stays(
    store: LocalStore, tmp_path: Path
) -> None:
    other = LocalStore(tmp_path / "other")
    save(recorder(other, "record"), ask("one"), Reply("by hand"))
    export_folder(Library(other), tmp_path / "set")
    (digest,) = Library(other).digests()
    assert import_folder(Library(store), tmp_path / "set") == (0, 0, (digest,))
    found = find(recorder(store, "replay"), ask("one"))
    assert found is not None
    assert found.text == "1 🚚"


def test_a_reply_that_was_edited_by_hand_is_imported(store: LocalStore, tmp_path: Path) -> None:
    export_folder(Library(store), tmp_path / "set")
    for path in (tmp_path / "set").iterdir():
        path.write_text(path.read_text("utf-8").replace("1 🚚", "edited"), "utf-8")
    other = LocalStore(tmp_path / "other")
    import_folder(Library(other), tmp_path / "set")
    found = find(recorder(other, "replay"), ask("one"))
    assert found is not None
    assert found.text == "edited"


def changed(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda document: {**document, **values}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed(schema=2), "schema"),
        (changed(key="abc"), "key"),
        (changed(iteration=-1), "iteration"),
        (changed(iteration=7), "its request was changed"),
        (changed(reply=None), "either `reply` or `error`"),
        (changed(reply={"text": 1}), "reply.text"),
        (changed(reply={"text": "a", "latency_ms": -1}), "reply.latency_ms"),
        (changed(more=1), "more"),
        (lambda document: [document], "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_with_a_mistake_is_told_and_nothing_is_imported(
    store: LocalStore, tmp_path: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    export_folder(Library(store), tmp_path / "set")
    path = next(p for p in (tmp_path / "set").iterdir() if "reply" in p.read_text("utf-8"))
    path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))), "utf-8")
    other = LocalStore(tmp_path / "other")
    with pytest.raises(LoadError) as caught:
        import_folder(Library(other), tmp_path / "set")
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert list(Library(other).digests()) == []


def test_mistakes_of_all_files_are_told_together(store: LocalStore, tmp_path: Path) -> None:
    export_folder(Library(store), tmp_path / "set")
    for path in (tmp_path / "set").iterdir():
        path.write_bytes(b"{")
    with pytest.raises(LoadError) as caught:
        import_folder(Library(store), tmp_path / "set")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("folder", [".", "missing", "file"])
def test_a_folder_without_recordings_is_a_mistake(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="no recordings there"):
        import_folder(Library(LocalStore(tmp_path / "store")), tmp_path / folder)

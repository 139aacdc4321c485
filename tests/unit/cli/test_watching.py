"""Which files a round is made of, and which changes of them count."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from evalcore.cli.watch import OpenedFiles, WatchedFiles, stamp_of


def opened(folder: Path, *events: tuple[str, tuple[Any, ...]]) -> OpenedFiles:
    files = OpenedFiles([folder], folder / "store")
    for event in events:
        files.note(*event)
    return files


def reading(path: Path | str) -> tuple[str, tuple[Any, ...]]:
    return "open", (str(path), "r", os.O_RDONLY)


def test_what_counts_is_read_below_the_bounds_and_neither_hidden_nor_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = opened(
        tmp_path,
        reading("a.yaml"),
        reading(tmp_path / "b/.env"),
        reading(tmp_path / "b/__pycache__/code.cpython-311.pyc"),
        ("open", (os.fsencode(tmp_path / "c.yaml"), "r", os.O_RDONLY)),
        ("os.scandir", (str(tmp_path / "cases"),)),
        ("open", (str(tmp_path / "written"), "w", os.O_WRONLY)),
        ("open", (3, "r", os.O_RDONLY)),
        reading(tmp_path / "store/runs/x"),
        reading(tmp_path / ".venv/site.py"),
        reading(tmp_path / "lib/site-packages/x.py"),
        reading(tmp_path.parent / "elsewhere.yaml"),
        ("os.scandir", (str(tmp_path / "store"),)),
        ("import", ("x",)),
    )
    names = {str(Path(path).relative_to(tmp_path)) for path in files.files}
    assert names == {"a.yaml", "b/.env", "b/code.py", "c.yaml"}
    assert files.folders == {str(tmp_path / "cases")}


def watched(*paths: Path, folders: tuple[Path, ...] = ()) -> WatchedFiles:
    files = WatchedFiles()
    files.update(notes(*paths, folders=folders), keep=False)
    return files


def notes(*paths: Path, folders: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the notes of a round that read the files as they are now."""
    return {
        "files": {str(path): stamp_of(path) for path in paths},
        "folders": [str(folder) for folder in folders],
    }


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text("one")
    return path


def test_a_file_that_is_saved_with_the_same_contents_has_not_changed(suite: Path) -> None:
    files = watched(suite)
    suite.with_suffix(".new").write_text("one")
    suite.with_suffix(".new").replace(suite)
    assert files.changed() == []
    suite.with_suffix(".new").write_text("two")
    suite.with_suffix(".new").replace(suite)
    assert files.changed() == [str(suite)]


def test_a_file_that_goes_or_comes_has_changed(suite: Path, tmp_path: Path) -> None:
    files = watched(suite, tmp_path / "absent.yaml")
    suite.unlink()
    (tmp_path / "absent.yaml").touch()
    assert files.changed() == [str(suite), str(tmp_path / "absent.yaml")]


def test_a_further_file_in_a_folder_that_was_listed_is_a_change(tmp_path: Path) -> None:
    files = watched(folders=(tmp_path,))
    (tmp_path / ".swap").touch()
    assert files.changed() == []
    (tmp_path / "b.yaml").touch()
    assert files.changed() == [str(tmp_path)]


def test_a_change_during_a_round_starts_the_next_and_not_a_third(suite: Path) -> None:
    files = WatchedFiles()
    for text, postponed in (("two", []), ("three", [str(suite)])):
        read = notes(suite)
        suite.write_text(text)
        files.update(read, keep=False)
        assert files.postponed == postponed
        if not postponed:
            assert files.wait() == [str(suite)]
    assert files.changed() == []
    suite.write_text("four")
    assert files.changed() == [str(suite)]


def test_a_suite_that_does_not_load_leaves_the_files_of_the_round_before(
    suite: Path, tmp_path: Path
) -> None:
    files = watched(suite, tmp_path / "code.py")
    files.update(notes(suite), keep=True)
    assert set(files.digests) == {str(suite), str(tmp_path / "code.py")}
    files.update(notes(suite), keep=False)
    assert set(files.digests) == {str(suite)}

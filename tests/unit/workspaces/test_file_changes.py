"""Files that a test has changed are found by their contents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evalcore.workspaces.folders import TEXT_BYTES, Folder, changes, look

LONG = "x" * (TEXT_BYTES + 1)


def written_long_ago(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(1, 1))


def changed(folder: Path, before: Folder) -> list[tuple[str, str]]:
    return [(entry["path"], entry["change"]) for entry in changes(folder, before)]


@pytest.mark.parametrize("text", ["short", LONG], ids=["short", "long"])
def test_a_file_that_is_written_again_as_it_was_is_no_change(tmp_path: Path, text: str) -> None:
    written_long_ago(tmp_path / "f", text)
    before = look(tmp_path)
    (tmp_path / "f").write_text(text)

    assert changed(tmp_path, before) == []
    (tmp_path / "f").write_text(text.replace("t", "T").replace("x", "y"))
    assert changed(tmp_path, before) == [("f", "modified")]

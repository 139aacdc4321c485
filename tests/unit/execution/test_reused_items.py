"""Evidence of earlier runs, which is copied before it is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from evalcore.errors import StoreError
from evalcore.execution.reused_items import ReusedItems
from evalcore.storage.runs import open_run
from tests.support.counting_store import CountingStore


def test_a_copy_that_finds_no_temporary_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(CountingStore(tmp_path), "suite", "20260518T100000Z-aaaaaa")
    run.store.put_if_absent(run.keys.reuse_part(0), b"PAR1")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])

    with pytest.raises(StoreError, match="No usable temporary directory"):
        ReusedItems(run, required=False).prepare(range(1))

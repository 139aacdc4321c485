"""Chunks written and hashed behind their caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.storage.written_chunks import write_chunks


def test_a_chunk_that_cannot_be_written_raises_its_error_to_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"")
    with path.open("rb") as read_only, pytest.raises(OSError, match="write"):
        write_chunks(read_only, [b"last"])

"""A row that no column can hold is found among the others, and becomes that item's error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from evalcore.execution.row import error_row
from evalcore.sql.rows import RowsError, unwritable_rows, write_rows


def line(item: int, **fields: Any) -> bytes:
    row = {"item": item, "case_id": f"c{item}", "status": "completed", "started_at": 1}
    return orjson.dumps({**row, "ended_at": 2, "assertions": [], **fields}) + b"\n"


@pytest.mark.parametrize(
    "fields",
    [{"input_tokens": 2**63}, {"attempts": 2**31}, {"score": "much"}],
    ids=["tokens", "attempts", "text"],
)
def test_the_other_rows_of_a_shard_are_written_intact(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    lines = [line(item) for item in range(20)]
    lines[7] = line(7, **fields)
    with pytest.raises(RowsError):
        write_rows(lines, tmp_path / "rows.parquet")
    reasons = unwritable_rows(lines)
    assert list(reasons) == [7]
    lines[7] = error_row(lines[7], reasons[7])
    write_rows(lines, tmp_path / "whole.parquet")
    query = "SELECT item, status, error.kind FROM read_parquet($1) ORDER BY item"
    rows = duckdb.connect().execute(query, [str(tmp_path / "whole.parquet")]).fetchall()
    assert [row[0] for row in rows] == list(range(20))
    assert [row[1] for row in rows] == ["completed"] * 7 + ["error"] + ["completed"] * 12
    assert rows[7][2] == "evidence"

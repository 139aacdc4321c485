"""Rows of data (JSONL, CSV, Parquet) are cases and add nothing that runs; exports are data, too."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import evalcore

TOUCH = ["touch", "ran"]
PLAIN = {"type": "contains", "value": "a"}


def _row(**more: Any) -> dict[str, Any]:
    return {"id": "one", "input": "a", "output": "a", "assertions": [PLAIN]} | more


RUNNING: list[dict[str, Any]] = [
    _row(assertions=[PLAIN, {"type": "code-grader", "command": TOUCH}]),
    _row(assertions=[{"type": "code_grader", "command": TOUCH}]),
    _row(execution={"assertions": [{"type": "code-grader", "command": TOUCH}]}),
    _row(
        assertions=[
            {
                "type": "composite",
                "assertions": [PLAIN, {"type": "code-grader", "name": "x", "command": TOUCH}],
                "aggregator": {"type": "weighted_average"},
            }
        ]
    ),
    _row(
        assertions=[
            {
                "type": "composite",
                "assertions": [PLAIN],
                "aggregator": {"type": "code-grader", "command": TOUCH},
            }
        ]
    ),
    _row(workspace={"hooks": {"before_each": {"command": TOUCH}}}),
    _row(execution={"target": {"name": "x", "provider": "command", "command": TOUCH}}),
]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_rows_that_add_what_runs_are_mistakes_each(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"cases.{form}"
    # Of what tests have beside assertions, a table's cells hold no mappings.
    taken = RUNNING if form == "jsonl" else [row for row in RUNNING if len(row) == len(_row())]
    rows = [row | {"id": f"row-{number}"} for number, row in enumerate(taken)]
    assert len(rows) > 3
    if form == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        _write_table(path, rows)
    ended = evalcore("run", path, store=tmp_path / "store", cwd=tmp_path)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert not (tmp_path / "ran").exists()
    for number in range(len(rows)):
        (line,) = [line for line in ended.err.splitlines() if f"'row-{number}'" in line]
        assert "declare it in the suite file" in line


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = path.with_suffix(".csv")
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for row in rows:
            cells = ((n, v if isinstance(v, str) else json.dumps(v)) for n, v in row.items())
            writer.writerow(dict(cells))
    if path != table:
        import duckdb

        duckdb.sql(f"COPY (FROM read_csv('{table}', all_varchar = true)) TO '{path}'")
        table.unlink()


def test_what_the_defaults_file_declares_runs_for_rows(tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text(json.dumps(_row()))
    grader = ["python3", "-c", "print('{\"score\": 1}')"]
    (tmp_path / "cases.yaml").write_text(
        json.dumps({"assertions": [{"type": "code-grader", "command": grader}]})
    )
    ended = evalcore("run", tmp_path / "cases.jsonl", "--json", store=tmp_path / "store")
    assert ended.code == 0, ended.err
    (case,) = ended.report["cases"]
    assert [one["type"] for one in case["items"][0]["assertions"]] == ["contains", "code-grader"]


FORMULAS = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "  =1", "'=1",
    '"=1', "\ufeff=1", "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x", "\u2028=1", "\u2029+1",
    "\x0b-1+1", "\x0c@x", "\x1c=1", "\x85=1", "\u200b=1", "\u202e=1", "\u2060=1", "\xad=1",
    " \u2028\x0b'=1",
]  # fmt: skip
NO_FORMULAS = ["-5", "+1.5e3", "plain", "a=b", "'quoted'", "\u2028plain", "é=1"]


def test_no_cell_of_an_export_is_a_formula_and_none_loses_data(tmp_path: Path) -> None:
    rows = [_row(id=text, input="a") for text in [*FORMULAS, *NO_FORMULAS]]
    suite = tmp_path / "cells.jsonl"
    suite.write_text("\n".join(json.dumps(row) for row in rows))
    out = tmp_path / "rows.csv"
    ended = evalcore("run", suite, "--export", out, store=tmp_path / "store")
    assert ended.code == 0, ended.err
    with out.open(newline="", encoding="utf-8") as file:
        cells = [row["test_id"] for row in csv.DictReader(file)]
    assert cells == [*(f"'{text}" for text in FORMULAS), *NO_FORMULAS]

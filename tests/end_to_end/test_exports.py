"""`--export`: a run's rows and reports as files for others."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import duckdb
import pytest

from tests.support.shell import ROOT, Ended, evalcore

FIELDS = [
    "timestamp", "suite", "test_id", "target", "variant", "iteration", "score", "verdict",
    "status", "scores", "error", "failure_stage", "failure_reason", "artifacts",
    "group", "input", "output", "metrics", "tags", "finish_reason",
]  # fmt: skip
SCORE_FIELDS = [
    "name", "type", "block", "score", "weight", "verdict", "required", "assertions", "details",
    "token_usage", "duration_ms",
]  # fmt: skip
SUITE = """
name: exported
targets: [{name: default, provider: command, command: "exit 3"}]
tests:
  - {id: passes, input: x, fixtures: {output: "one\\u2028two"}, assertions: [{type: contains, value: one, required: true}]}
  - {id: "=cmd()", input: x, fixtures: {output: no}, assertions: [{type: contains, value: one, weight: 2}]}
  - {id: errs, input: x, assertions: [{type: contains, value: one}]}
  - {id: breaks, input: x, fixtures: {output: x}, assertions: [{type: cost, threshold: 1}]}
"""  # noqa: E501


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "exported.eval.yaml"
    path.write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run's rows and reports in every form, as `x.FORM`."""
    path = tmp_path_factory.mktemp("exported") / "exported.eval.yaml"
    path.write_text(SUITE)
    names = (f"x.{form}" for form in ("jsonl", "csv", "parquet", "xml", "html"))
    assert export(path, *names).code == 1
    return path.parent


def export(suite: Path, *names: str) -> Ended:
    flags = [part for name in names for part in ("--export", str(suite.parent / name))]
    return evalcore("run", suite, *flags, store=suite.parent / "store")


def test_json_lines_have_the_fields_of_the_page(exported: Path) -> None:
    rows = [json.loads(line) for line in (exported / "x.jsonl").read_text().splitlines()]
    assert [list(row) for row in rows] == [FIELDS] * 4
    assert [list(row["scores"][0]) for row in rows if row["scores"]] == [SCORE_FIELDS] * 3
    found = {
        row["test_id"]: (row["verdict"], row["failure_stage"], row["failure_reason"])
        for row in rows
    }
    assert found == {
        "passes": ("pass", None, None),
        "=cmd()": ("fail", None, None),
        "errs": ("error", "execution", "command"),
        "breaks": ("blocked", "grading", rows[3]["failure_reason"]),
    }
    assert rows[0]["scores"][0]["required"] == 0.8
    assert rows[1]["scores"][0]["weight"] == 2.0
    assert "exit code 3" in rows[2]["error"]
    results = rows[0]["artifacts"]["results"]
    assert (exported / "store" / results).is_file()


def test_parquet_and_csv_hold_the_same_rows(exported: Path) -> None:
    table = duckdb.sql(f"FROM '{exported}/x.parquet'")
    assert table.columns == FIELDS
    with (exported / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # No spreadsheet calculates what a cell holds.
    assert rows[1]["test_id"] == "'=cmd()"
    assert [row["verdict"] for row in rows] == ["pass", "fail", "error", "blocked"]
    assert json.loads(rows[0]["scores"])[0]["name"] == "contains-one"
    assert table.fetchall()[1][2] == "=cmd()"


def test_the_page_has_each_column_with_its_type_and_how_csv_is_read(exported: Path) -> None:
    page = (ROOT / "docs/reference/report.md").read_text("utf-8")
    section = page.split("## Exported rows\n")[1].split("\n## ")[0]
    kinds = {
        name: kind
        for names, kind in re.findall(r"^\| (`.*?) \| ([a-z ]+) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    columns = duckdb.sql(f"DESCRIBE FROM '{exported}/x.parquet'").fetchall()
    assert {name: kind_of(column) for name, column, *_ in columns} == kinds

    (query,) = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    rows = duckdb.sql(query.replace("rows.csv", str(exported / "x.csv"))).fetchall()
    whole = duckdb.sql(f"SELECT len(scores) FROM '{exported}/x.parquet'").fetchall()
    assert [count for *_, count in rows] == [count for (count,) in whole]


def kind_of(column: str) -> str:
    """Return a type of DuckDB as the page says it."""
    plain = {"VARCHAR": "text", "INTEGER": "integer", "DOUBLE": "number"}
    plain["VARCHAR[]"] = "list of texts"
    return plain.get(column) or ("list of objects" if column.endswith("[]") else "object")


def test_xml_is_junit_and_html_a_page(exported: Path) -> None:
    root = ElementTree.parse(exported / "x.xml").getroot()
    assert (root.tag, root.get("tests"), root.get("errors")) == ("testsuites", "4", "1")
    assert (exported / "x.html").read_text().startswith("<!DOCTYPE html>")


def test_a_finished_run_is_exported_from_the_store(exported: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    ended = evalcore("report", "latest", "--export", again, store=exported / "store")
    assert ended.code == 0, ended.err
    assert again.read_text() == (exported / "x.jsonl").read_text()


def test_several_suites_share_json_lines_and_nothing_else(suite: Path) -> None:
    folder = suite.parent
    both = evalcore("run", suite, suite, "--export", folder / "x.jsonl", store=folder / "store")
    assert both.code == 1
    assert len((folder / "x.jsonl").read_text().splitlines()) == 8
    refused = evalcore("run", suite, suite, "--export", folder / "x.csv", store=folder / "s2")
    assert (refused.code, (folder / "s2").exists()) == (2, False)


REFUSED = [("x.txt", "ends in none of"), ("nowhere/x.csv", "there is no folder")]


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_what_cannot_be_written_is_refused_before_anything_runs(
    suite: Path, name: str, message: str
) -> None:
    ended = export(suite, name)
    assert (ended.code, (suite.parent / "store").exists()) == (2, False)
    assert message in ended.err


@pytest.mark.parametrize(("gate", "code"), [("pass_rate=0", 4), ("pass_rate=1", 1)])
def test_an_export_that_fails_after_the_run_does_not_hide_its_decision(
    gate: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "s.eval.yaml").write_text(
        "tests: [{id: a, input: q, fixtures: {output: b}, assertions: [{type: equals, value: c}]}]"
    )
    # A file may have this name. The one that becomes it when it is whole may not.
    name = "x" * 249 + ".jsonl"
    command = ("run", "--json", "s.eval.yaml", "--gate", gate, "--export", name)
    ended = evalcore(*command, store=tmp_path / "store", cwd=tmp_path)
    assert (ended.code, len(ended.lines)) == (code, 1)
    assert "File name too long" in ended.err


def test_rows_have_input_output_metrics_and_tags(tmp_path: Path) -> None:
    path = tmp_path / "s.eval.yaml"
    path.write_text(
        """
tests:
  - {id: a, input: "=1+1", tags: [x, "=y"], fixtures: {output: "=2"}, assertions: [{type: contains, value: "2"}]}
  - {id: b, input: [{role: user, content: é}], fixtures: {output: "2"}, assertions: [{type: contains, value: "2"}]}
"""  # noqa: E501
    )
    assert export(path, "x.jsonl", "x.csv", "x.parquet").code == 0
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    first, second = (json.loads(line) for line in lines)
    assert (first["input"], first["output"], first["tags"]) == ("=1+1", "=2", ["x", "=y"])
    assert json.loads(second["input"]) == [{"role": "user", "content": "é"}]
    assert first["metrics"]["cost_usd"] is None
    assert first["metrics"]["scorers"] == []
    with (tmp_path / "x.csv").open(newline="") as file:
        row = next(iter(csv.DictReader(file)))
    assert (row["input"], row["output"], row["tags"]) == ("'=1+1", "'=2", '["x","=y"]')
    table = duckdb.read_parquet(str(tmp_path / "x.parquet"))
    assert table.select("input, output").fetchall()[0] == ("=1+1", "=2")

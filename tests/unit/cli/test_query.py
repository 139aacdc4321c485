"""`evalcore query` prints answers in the form that was asked for."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner, Result

from evalcore.cli.history import query
from evalcore.storage.local import LocalStore
from tests.support.history_runs import run_outputs


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("query")
    run_outputs(LocalStore(folder / "store"), folder, {"a": "good", "=1+1": "bad"})
    return str(folder / "store")


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(query, arguments, input=stdin)


def test_json_is_one_array_of_objects(store: str) -> None:
    sql = "SELECT case_id, passed, tokens, 1 AS n FROM cases ORDER BY 1 DESC"
    result = invoke(sql, "--json", "--store", store)
    assert json.loads(result.stdout) == [
        {"case_id": "a", "passed": True, "tokens": None, "n": 1},
        {"case_id": "=1+1", "passed": False, "tokens": None, "n": 1},
    ]
    assert invoke("FROM cases WHERE false", "--json", "--store", store).stdout == "[]\n"


def test_times_are_in_utc_and_large_numbers_are_numbers(store: str) -> None:
    sql = "SELECT started_at, 2::HUGEINT ** 70 AS huge, 'nan'::DOUBLE AS nan FROM runs"
    (row,) = json.loads(invoke(sql, "--json", "--store", store).stdout)
    assert row["started_at"].endswith("Z")
    assert row["huge"] == float(2**70)
    assert row["nan"] is None


def test_csv_has_no_formula(store: str) -> None:
    result = invoke("SELECT case_id, -1 AS n FROM cases ORDER BY 1", "--format", "csv",
                    "--store", store)  # fmt: skip
    assert list(csv.reader(result.stdout.splitlines())) == [
        ["case_id", "n"],
        ["'=1+1", "-1"],
        ["a", "-1"],
    ]


def test_a_table_is_cut_and_says_so(store: str) -> None:
    result = invoke("FROM range(500)", "--store", store)
    assert len(result.stdout.splitlines()) == 102
    assert "more rows than 100" in result.stderr
    assert len(invoke("FROM range(5)", "--limit", "5", "--store", store).stdout.splitlines()) == 7
    assert invoke("FROM range(5)", "--limit", "5", "--store", store).stderr == ""


def test_a_table_shows_no_control_characters(store: str) -> None:
    result = invoke("SELECT chr(27) || '[31mred' || chr(10) || 'x' AS t", "--store", store)
    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 3


def test_parquet_goes_to_a_file(store: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.parquet"
    assert invoke("FROM cases", "-o", str(path), "--store", store).exit_code == 0
    assert duckdb.connect().execute(f"SELECT count(*) FROM '{path}'").fetchall() == [(2,)]


def test_sql_comes_from_standard_input(store: str) -> None:
    result = invoke("--format", "csv", "--store", store, stdin="SELECT 1 AS a\n")
    assert result.stdout == "a\n1\n"


def test_the_schema_lists_every_column_with_its_unit() -> None:
    views = json.loads(invoke("--schema", "--json").stdout)
    assert [view["view"] for view in views] == ["runs", "gates", "cases", "assertions"]
    latency = next(c for c in views[0]["columns"] if c["name"] == "p50_latency_ms")
    assert latency["unit"] == "ms"
    assert "p50_latency_ms" in invoke("--schema").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT 1", "-o", "missing/file.csv"], "-o: missing/file.csv cannot be written"),
        (["SELECT 1", "-o", "missing/file.parquet"], "cannot be written"),
        (["SELECT 1", "--format", "parquet"], "use -o FILE"),
        (["DROP TABLE runs"], "SELECT"),
    ],
)
def test_a_query_that_cannot_be_answered_says_why(
    store: str, arguments: list[str], message: str
) -> None:
    result = invoke(*arguments, "--no-sync", "--store", store)
    assert result.exit_code != 0
    assert message in str(result.exception)

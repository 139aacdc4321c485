"""The history for Python: relations, trends, what a notebook shows."""

from __future__ import annotations

import importlib
from datetime import timedelta
from pathlib import Path

import polars
import pytest
from click.testing import CliRunner

import evalcore
from evalcore import define_suite, run_suite
from evalcore.cli.report import report as report_command
from evalcore.errors import UsageError
from evalcore.storage.local import LocalStore
from tests.support.history_runs import run_outputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opened")
    store = LocalStore(folder / "store")
    for output in ("good", "bad"):
        run_outputs(store, folder, {"a": output, "b": "good"}, name="it's")
    with evalcore.history(folder / "store"):
        pass  # it is brought up to date
    return folder


def test_the_history_is_opened_by_calling_its_package(folder: Path) -> None:
    importlib.import_module("evalcore.history.sync")  # an attribute of the same name
    with evalcore.history(folder / "store") as history:
        assert [row[1] for row in history.runs("it's").fetchall()] == ["it's", "it's"]
        assert history.runs("' OR true --").fetchall() == []
        assert len(history.cases("it's").fetchall()) == 4
        count = history.sql("SELECT count(*) FROM cases WHERE case_id = $case", case="a")
        assert count.fetchall() == [(2,)]
        assert polars.DataFrame(history.cases()).height == 4


def test_a_trend_is_a_relation_of_its_points(folder: Path) -> None:
    with evalcore.history(folder / "store", refresh=False) as history:
        trend = history.trend("it's", "pass_rate", since=timedelta(days=1))
        assert trend.columns[:4] == ["run_id", "started_at", "variant", "value"]
        assert [row[3] for row in trend.fetchall()] == [1.0, 0.5]
        with pytest.raises(UsageError, match="known: score, pass_rate"):
            history.trend("it's", "speed")


def test_a_report_has_rows_and_a_page_for_notebooks(tmp_path: Path) -> None:
    case = {
        "id": "<script>",
        "input": "x",
        "assertions": [{"type": "contains", "value": "<"}],
    }
    suite = define_suite("notebook", lambda _: "</iframe>", [case], [{"id": "a"}])
    report = run_suite(suite, store=tmp_path / "store")
    assert report.rows().project("case_id, output").fetchall() == [("<script>", "</iframe>")]
    page = report._repr_html_()
    assert page.startswith('<iframe sandbox="allow-scripts"')
    assert page.count("<") == 2


def test_a_printed_report_is_that_of_the_command_line(tmp_path: Path) -> None:
    case = {"id": "a", "input": "x", "assertions": [{"type": "contains", "value": "no"}]}
    suite = define_suite("printed", lambda _: "so\nit is", [case], [{"id": "v"}])
    report = run_suite(suite, store=tmp_path / "store")
    address = str(tmp_path / "store")
    shown = CliRunner().invoke(report_command, [report.run_id, "--store", address])
    assert "printed (suite): 1 item: 0 passed, 1 failed" in str(report)
    assert f"{report}\n" == shown.output

"""The history for Python: relations, trends, what a notebook shows."""

from __future__ import annotations

import importlib
from datetime import timedelta
from pathlib import Path

import polars
import pytest

import evalcore
from evalcore.errors import UsageError
from evalcore.storage.local import LocalStore
from evalcore.suites.run import run_suite
from tests.support.history_runs import run_outputs

SUITE = """\
name: notebook
tests:
  - {id: "<script>", input: x, fixtures: {output: "</iframe>"}, assertions: [{type: contains, value: "<"}]}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("opened")
    store = LocalStore(folder / "store")
    for output in ("good", "bad"):
        run_outputs(store, folder, {"a": output, "b": "good"}, name="it's")
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


def test_a_trend_has_points_a_relation_and_a_picture(folder: Path) -> None:
    with evalcore.history(folder / "store", refresh=False) as history:
        trend = history.trend("it's", "pass_rate", since=timedelta(days=1))
        assert [point.value for point in trend.points] == [1.0, 0.5]
        assert [row[3] for row in trend.relation.fetchall()] == [1.0, 0.5]
        picture = trend._repr_html_()
        assert picture.startswith('<img alt="trend"')
        with pytest.raises(UsageError, match="known: score, pass_rate"):
            history.trend("it's", "speed")


def test_a_report_has_rows_and_a_page_for_notebooks(tmp_path: Path) -> None:
    path = tmp_path / "notebook.eval.yaml"
    path.write_text(SUITE)
    report = run_suite(path, store=tmp_path / "store")
    assert report.rows().project("case_id, output").fetchall() == [("<script>", "</iframe>")]
    page = report._repr_html_()
    assert page.startswith('<iframe sandbox="allow-scripts"')
    assert page.count("<") == 2

"""A suite over its runs: its figures, what changed, since when a case fails, what is flaky."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalcore.cli.history import history
from evalcore.errors import UsageError
from evalcore.history.fingerprints import Fingerprint, describe_changes
from evalcore.history.sync import sync
from evalcore.history.trend import SuiteHistory, latest_runs
from evalcore.model.summary import Metric
from evalcore.report.charts import sparkline
from evalcore.storage.local import LocalStore
from tests.support.history_runs import run_outputs

SAME = Fingerprint("t", "m", "t1", "c1", None, "s1", "0.1.0", "a" * 40, False)


@pytest.mark.parametrize(
    ("changed", "texts"),
    [
        ({}, ()),
        ({"model": "m2", "target_sha256": "t2", "suite_sha256": "s2"}, ("model m → m2",)),
        ({"target": "u", "target_sha256": "t2"}, ("target t → u",)),
        (
            {"target_sha256": "t2", "suite_sha256": "s2"},
            ("prompt, settings or code of the target",),
        ),
        ({"cases_sha256": "c2", "suite_sha256": "s2"}, ("cases",)),
        ({"judges_sha256": "j"}, ("judges",)),
        ({"suite_sha256": "s2"}, ("suite file",)),
        ({"engine": "0.2.0"}, ("evalcore 0.1.0 → 0.2.0",)),
        ({"git_commit": "b" * 40}, ("commit aaaaaaa → bbbbbbb",)),
        ({"git_dirty": True}, ("commit aaaaaaa → aaaaaaa+",)),
        ({"git_commit": None}, ()),
        ({"model": None}, ()),
    ],
)
def test_what_changed_is_named(changed: dict[str, object], texts: tuple[str, ...]) -> None:
    assert describe_changes(SAME, SAME._replace(**changed)) == texts  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """Four runs: all pass; all pass; `b` fails; `b` fails otherwise. And one of another suite."""
    folder = tmp_path_factory.mktemp("trend")
    store = LocalStore(folder / "store")
    for outputs in ("good", "good", "bad", "worse"):
        run_outputs(store, folder, {"a": "good", "b": outputs, "it's": "good"})
    run_outputs(store, folder, {"x": "good"}, name="Other")
    sync(store)
    return store


def test_a_trend_has_a_point_for_each_run_with_interval_and_changes(store: LocalStore) -> None:
    with SuiteHistory(store, "support") as suite:
        rate = suite.trend(Metric.PASS_RATE)
        cost = suite.trend(Metric.COST)
    assert [round(point.value or 0, 4) for point in rate.points] == [1.0, 1.0, 0.6667, 0.6667]
    assert [point.decision for point in rate.points] == ["pass", "pass", "fail", "fail"]
    assert [bool(point.changes) for point in rate.points] == [False, False, True, True]
    assert rate.points[2].low == pytest.approx(0.2077, abs=1e-4)
    assert rate.points[2].high == pytest.approx(0.9385, abs=1e-4)
    assert cost.points[0].value == pytest.approx(0.03)
    assert cost.points[0].low is None


def test_the_newest_run_of_each_suite_has_its_decision_and_what_changed(store: LocalStore) -> None:
    newest = {suite: (run.decision, run.before) for suite, run in latest_runs(store).items()}
    assert newest == {"support": ("fail", "fail"), "Other": ("pass", None)}


def test_a_case_says_since_when_it_fails_and_what_changed(store: LocalStore) -> None:
    with SuiteHistory(store, "support", case_tables=True) as suite:
        (failing,) = suite.case("b")
        (passing,) = suite.case("it's")
    assert [outcome.passed for outcome in failing.outcomes] == [True, True, False, False]
    assert len(failing.failing) == 2
    assert failing.last_pass == failing.outcomes[1]
    assert failing.changes == ("cases",)
    assert failing.same_work is False
    assert passing.failing == ()


@pytest.mark.parametrize(
    ("suite", "variant", "case", "message"),
    [
        ("suport", None, None, "has no suite 'suport'.* Did you mean 'support'"),
        ("'; DROP TABLE runs", None, None, "has no suite"),
        ("support", "x", None, "has no variant 'x'.* It has: default"),
        ("support", None, "bb", "have no case 'bb'"),
        ("support", None, "' OR 1=1 --", "have no case"),
    ],
)
def test_unknown_names_are_usage_errors(
    store: LocalStore, suite: str, variant: str | None, case: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        look(store, suite, variant, str(case))


def look(store: LocalStore, suite: str, variant: str | None, case: str) -> None:
    with SuiteHistory(store, suite, case_tables=True) as opened:
        opened.trend(variant=variant)
        opened.case(case)


def test_names_that_differ_in_case_are_one_suite(store: LocalStore) -> None:
    with SuiteHistory(store, "other") as suite:
        assert suite.suite == "Other"
        assert len(suite.trend().points) == 1


def test_runs_before_the_time_asked_for_are_left_out(store: LocalStore) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with SuiteHistory(store, "support", since=tomorrow) as suite:
        assert suite.trend().points == ()


def test_a_store_without_history_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no runs that have ended"):
        SuiteHistory(LocalStore(tmp_path / "none"), "support")


def test_flips_count_where_the_work_is_the_same(tmp_path: Path) -> None:
    """`check` calls a clock-like file, so the same case passes and fails with the same work."""
    store, folder = LocalStore(tmp_path / "store"), tmp_path
    (folder / "flip.py").write_text(
        "import pathlib, sys\n"
        "calls = pathlib.Path(__file__).with_name('calls.txt')\n"
        "number = int(calls.read_text()) if calls.exists() else 0\n"
        "calls.write_text(str(number + 1))\n"
        "print('good' if number % 3 else 'bad')\n"
    )
    (folder / "flaky.eval.yaml").write_text(
        "name: flaky\nexecution: {target: t}\n"
        "targets: [{name: t, provider: command, command: [python3, flip.py]}]\n"
        "tests:\n  - {id: c, input: x, assertions: [{type: contains, value: good}]}\n"
    )
    from evalcore.formats.options import LoadOptions
    from evalcore.formats.registry import load_suite
    from evalcore.pipeline.finish import evaluate
    from evalcore.pipeline.session import ExecuteOptions

    for _ in range(4):
        suite = load_suite(folder / "flaky.eval.yaml", LoadOptions(iterations=2, concurrency=1))
        with evaluate(suite, store, ExecuteOptions(concurrency=1)):
            pass
    sync(store)
    with SuiteHistory(store, "flaky", case_tables=True) as history_:
        (case,) = history_.flaky()
        assert history_.flaky("other") == ()
    # Calls 0–7 fail at 0, 3 and 6: runs are mixed, mixed, passed, mixed.
    assert (case.iterations.flips, case.iterations.chances) == (3, 4)
    assert (case.runs.flips, case.runs.chances) == (2, 3)
    assert case.iterations.interval is not None


@pytest.mark.parametrize(
    ("values", "line"),
    [([0.0, 0.5, 1.0], "▁▅█"), ([0.5, 0.5], "▄▄"), ([None, 1.0], "·▄"), ([None], "·"), ([], "")],
)
def test_a_sparkline_has_a_bar_for_each_value(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def shown(store: LocalStore, *arguments: str) -> str:
    address = store.url.removeprefix("file://")
    result = CliRunner().invoke(history, [*arguments, "--store", address])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_shows_the_trend_a_case_and_flaky_cases(
    store: LocalStore, tmp_path: Path
) -> None:
    chart = tmp_path / "trend.svg"
    text = shown(store, "support", "--metric", "pass_rate", "--chart", str(chart))
    assert "66.7%" in text
    assert "changed since the run before" in text
    assert chart.read_text("utf-8").startswith("<svg")
    document = json.loads(shown(store, "support", "--json", "--since", "90d"))
    assert [point["decision"] for point in document["points"]] == ["pass", "pass", "fail", "fail"]
    case = shown(store, "support", "--case", "b")
    assert "fails since" in case
    assert "changed between: cases" in case
    (values,) = json.loads(shown(store, "support", "--case", "b", "--json"))
    assert values["failing_runs"] == 2
    assert values["last_pass"] == document["points"][1]["run"]
    assert "no case differs" in shown(store, "support", "--flaky")
    assert json.loads(shown(store, "support", "--flaky", "--json"))["flaky"] == []

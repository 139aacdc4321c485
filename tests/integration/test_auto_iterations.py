"""`--iterations auto`: iterations are added until the gates are decided, over real stores."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from evalcore.errors import UsageError
from evalcore.execution.stopper import Stopper
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.model.suite import Suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import evaluate, finish_run, view_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore
from tests.support.shell import evalcore

SCORE: Any = {"gate": "score_at_least", "threshold": 0.8}


def suite_file(
    folder: Path, gates: Any, *, passing: int = 36, variants: int = 1, **section: Any
) -> Path:
    """Write a suite of 40 cases, of which the first ones pass in every iteration."""
    names = [f"v{number}" for number in range(variants)]
    written: dict[str, Any] = {
        "name": "rounds",
        "evalcore": {"gates": gates, **section},
        "execution": {"target": "v0"},
        "targets": [{"name": name, "provider": "mock", "response": "good"} for name in names],
        "tests": [
            {
                "id": f"c{number}",
                "input": "x",
                "metadata": {"document": f"d{number % 10}"},
                "assertions": [
                    {"type": "contains", "value": "good" if number < passing else "bad"}
                ],
            }
            for number in range(40)
        ],
    }
    if variants > 1:
        written["evalcore"] |= {
            "variants": [{"id": name, "target": name} for name in names],
            "baseline": "v0",
        }
    path = folder / "rounds.eval.yaml"
    path.write_text(yaml.safe_dump(written), "utf-8")
    return path


def suite_of(folder: Path, gates: Any, *, most: int = 6, **options: Any) -> Suite:
    path = suite_file(folder, gates, **options)
    return load_suite(path, LoadOptions(iterations=most, auto_iterations=True))


def night(
    store: ObjectStore, suite: Suite, plan_options: PlanOptions | None = None
) -> tuple[StoredRun, dict[str, Any]]:
    with evaluate(suite, store, plan_options=plan_options) as view:
        return view.run, orjson.loads(view.json())


def gate(report: dict[str, Any], name: str) -> tuple[str, str]:
    result = next(each for each in report["gates"] if each["name"] == name)
    return result["outcome"], result["message"]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_iterations_are_added_until_the_gates_are_decided(
    store: LocalStore, tmp_path: Path
) -> None:
    run, report = night(store, suite_of(tmp_path, [SCORE]))
    outcome, message = gate(report, "score_at_least")
    assert (report["decision"], outcome) == ("pass", "pass")
    assert "after 2 of 6 iterations" in message
    assert report["iterations"] == {
        "mode": "auto",
        "max": 6,
        "rounds": 2,
        "stopped": "decided",
        "cases": [{"iterations": 2, "cases": 40}],
    }
    counts = report["counts"]
    assert (counts["planned"], counts["completed"], counts["skipped"]) == (240, 80, 160)
    assert report["score"] == pytest.approx(0.9)
    with view_run(find_run(store, run.run_id)) as view:
        assert view.json() == run.store.get(run.keys.report).data


def test_what_no_iteration_may_fail_is_decided_by_the_first_failure(
    store: LocalStore, tmp_path: Path
) -> None:
    _, report = night(store, suite_of(tmp_path, [{"gate": "pass_rate", "threshold": 1.0}]))
    assert (report["decision"], report["iterations"]["rounds"]) == ("fail", 1)


def test_an_open_decision_runs_all_iterations(store: LocalStore, tmp_path: Path) -> None:
    whole = [{"gate": "pass_rate", "threshold": 1.0}]
    _, report = night(store, suite_of(tmp_path, whole, passing=40, most=3))
    assert (report["decision"], report["counts"]["skipped"]) == ("pass", 0)
    assert report["iterations"]["stopped"] == "decided by the last iteration"


def test_exported_rows_name_the_part_they_are_in(store: LocalStore, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    run, _ = night(store, suite_of(tmp_path, [SCORE], most=3))
    with view_run(run) as view:
        view.export("jsonl", path)
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    parts = [row["artifacts"]["results"].rpartition("/")[2] for row in rows]
    assert parts == [f"{number % 3:05d}.parquet" for number in range(120)]


def test_a_quarantined_case_is_run_once(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "quarantine.yaml").write_text(
        "- {case: c39, until: 2999-01-01, owner: ann, reason: flaky}\n", "utf-8"
    )
    _, report = night(store, suite_of(tmp_path, [SCORE]))
    counted = {entry["iterations"]: entry["cases"] for entry in report["iterations"]["cases"]}
    assert counted[1] == 1
    assert sum(counted.values()) == 40
    assert report["decision"] == "pass"


def stops_after(items: int) -> ExecuteOptions:
    stopper, ended = Stopper(), 0

    def count(_: object) -> None:
        nonlocal ended
        ended += 1
        if ended == items:
            stopper.drain()

    return ExecuteOptions(progress=count, stopper=stopper)


def finished(run: StoredRun) -> dict[str, Any]:
    with finish_run(run, now=datetime.now(UTC)) as view:
        return dict(orjson.loads(view.json()))


def test_a_stopped_run_goes_on_where_it_stopped(store: LocalStore, tmp_path: Path) -> None:
    suite = suite_of(tmp_path, [SCORE])
    options = PlanOptions(workers=4)
    run = plan_run(suite, store, options, now=datetime.now(UTC))
    execute_run(run, stops_after(1))
    assert 0 < len(run.written_shards()) < run.manifest().plan.shards
    again = find_run(store, run.run_id)
    execute_run(again)
    _, whole = night(store, suite, options)
    report = finished(again)
    for name in ("counts", "gates", "iterations", "decision", "score"):
        assert report[name] == whole[name]


def test_a_run_that_is_graded_again_keeps_its_rounds(store: LocalStore, tmp_path: Path) -> None:
    suite = suite_of(tmp_path, [SCORE])
    run, report = night(store, suite)
    _, regraded = night(store, suite, PlanOptions(reuse=run.run_id))
    assert regraded["counts"] == report["counts"]
    assert (regraded["gates"], regraded["iterations"]) == (report["gates"], report["iterations"])


@pytest.mark.parametrize(
    ("gates", "section", "reason"),
    [
        ([SCORE], {"reducer": "min"}, "reducer 'mean'"),
        ([{"gate": "required_assertions"}], {}, "needs a gate that can be decided early"),
    ],
    ids=["reducer", "gate"],
)
def test_what_cannot_be_decided_early_is_refused(
    store: LocalStore, tmp_path: Path, gates: Any, section: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        night(store, suite_of(tmp_path, gates, **section))
    assert not list(store.list("runs/"))


def test_the_command_line_adds_iterations(tmp_path: Path) -> None:
    path = suite_file(tmp_path, [SCORE])
    flags = ("-n", "auto:6", "--json", "--workers", "2")
    ended = evalcore("run", path, *flags, store=tmp_path / "store", forked=False)
    assert ended.code == 0, ended.err
    assert ended.report["iterations"]["max"] == 6
    assert ended.report["iterations"]["rounds"] == 2

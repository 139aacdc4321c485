"""Gates that look back and runs that stop early, over real stores."""

from __future__ import annotations

import random
import shutil
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from evalcore.errors import DamagedRunError, UsageError
from evalcore.execution.stopper import Stopper
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.history.compaction import compact
from evalcore.model.suite import Suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import evaluate, finish_run, view_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore

WORDS = [f"w{number:02d}" for number in range(12)]
PASS_RATE: Any = {"gate": "pass_rate", "threshold": 0.8}
# The order of a run that stops early, and so how many cases it needs, is always the same.
SEEDED = PlanOptions(seed=6)
LOOKING_BACK: list[Any] = [
    {"gate": "no_drop_from_history", "margin": 0.1},
    {"gate": "no_new_failures", "runs": 3},
    {"gate": "no_drift"},
]


def suite_of(folder: Path, passing: Collection[str], words: Collection[str] = WORDS) -> Suite:
    """Return a suite whose cases are always the same; those of `passing` pass."""
    written = {
        "name": "nightly",
        "evalcore": {"gates": LOOKING_BACK},
        "execution": {"target": "answers"},
        "targets": [{"name": "answers", "provider": "mock", "response": " ".join(sorted(passing))}],
        "tests": [
            {"id": word, "input": word, "assertions": [{"type": "contains", "value": word}]}
            for word in words
        ],
    }
    path = folder / "nightly.eval.yaml"
    path.write_text(yaml.safe_dump(written), "utf-8")
    return load_suite(path, LoadOptions())


def night(
    store: ObjectStore, suite: Suite, plan_options: PlanOptions = SEEDED
) -> tuple[StoredRun, dict[str, Any]]:
    with evaluate(suite, store, plan_options=plan_options) as view:
        return view.run, orjson.loads(view.json())


def gates(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {gate["name"]: (gate["outcome"], gate["message"]) for gate in report["gates"]}


def report_bytes(run: StoredRun) -> bytes:
    with view_run(find_run(run.store, run.run_id)) as view:
        return view.json()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture(scope="module")
def three_nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[StoredRun]]:
    """A store with three nights in which all cases passed; no test may change it."""
    folder = tmp_path_factory.mktemp("nights")
    suite = suite_of(folder, WORDS)
    store = LocalStore(folder / "store")
    return folder / "store", [night(store, suite)[0] for _ in range(3)]


@pytest.fixture
def earlier(
    three_nights: tuple[Path, list[StoredRun]], tmp_path: Path, store: LocalStore
) -> list[StoredRun]:
    """The three nights, copied to `store`."""
    folder, runs = three_nights
    shutil.copytree(folder, tmp_path / "store", dirs_exist_ok=True)
    return [find_run(store, run.run_id) for run in runs]


def test_a_night_is_decided_again_to_the_same_bytes(
    store: LocalStore, earlier: list[StoredRun], tmp_path: Path
) -> None:
    whole, less = suite_of(tmp_path, WORDS), suite_of(tmp_path, WORDS[1:])
    run, report = night(store, less)
    decided = gates(report)
    outcome, message = decided["no_new_failures"]
    assert outcome == "fail"
    assert f"3 runs ({earlier[0].run_id} – {earlier[-1].run_id})" in message
    assert decided["no_drift"][0] == "inconclusive"
    frozen = run.manifest().settings["history"]["runs"]
    assert frozen == [each.run_id for each in earlier]
    before = report_bytes(run)
    for _ in range(2):
        night(store, whole)
    assert report_bytes(run) == before
    compact(store)
    assert report_bytes(run) == before
    for each in earlier:
        for info in list(store.list(each.keys.folder)):
            store.delete(info.key)
    for info in list(store.list("history/")):
        store.delete(info.key)
    assert report_bytes(run) == before


def test_rows_that_were_frozen_and_changed_are_damage(
    store: LocalStore, earlier: list[StoredRun]
) -> None:
    run = earlier[-1]
    store.delete(run.keys.past_part("past_cases"))
    with pytest.raises(DamagedRunError, match="past_cases"), view_run(run):
        pass


def test_other_cases_are_no_history(
    store: LocalStore, earlier: list[StoredRun], tmp_path: Path
) -> None:
    _, report = night(store, suite_of(tmp_path, WORDS, WORDS[:-1]))
    for name in ("no_drop_from_history", "no_new_failures", "no_drift"):
        outcome, message = gates(report)[name]
        assert (outcome, "3 with other cases" in message) == ("inconclusive", True)


def test_a_run_that_is_graded_again_looks_back_as_before(
    store: LocalStore, earlier: list[StoredRun], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, WORDS)
    run, report = night(store, suite_of(tmp_path, WORDS[2:]))
    night(store, suite_of(tmp_path, WORDS[2:]))
    again, regraded = night(store, suite_of(tmp_path, WORDS[2:]), PlanOptions(reuse=run.run_id))
    assert gates(regraded) == gates(report)
    assert again.manifest().settings["history"] == run.manifest().settings["history"]
    later, _ = night(store, suite)
    history = later.manifest().settings["history"]
    assert again.run_id not in history["runs"]
    assert history["left_out"] == {"graded again": 1}


def test_a_deleted_run_is_left_out(
    store: LocalStore, earlier: list[StoredRun], tmp_path: Path
) -> None:
    suite = suite_of(tmp_path, WORDS)
    night(store, suite)
    for info in list(store.list(earlier[1].keys.folder)):
        store.delete(info.key)
    run, report = night(store, suite)
    assert len(run.manifest().settings["history"]["runs"]) == 3
    assert gates(report)["no_new_failures"][0] == "pass"


def stopping_suite(
    folder: Path,
    rate: float,
    gate: Any = None,
    *,
    cases: int = 200,
    variants: dict[str, float] | None = None,
    iterations: int = 1,
    clusters: int | None = None,
    stops: bool = True,
) -> Suite:
    """Return a suite that stops when it is decided; its fixtures pass at this rate."""
    source = random.Random(9)
    evalcore: dict[str, Any] = {
        "stop_when_decided": stops,
        "gates": gate if isinstance(gate, list) else [gate or PASS_RATE],
        "iterations": iterations,
    }
    tests = []
    for number in range(cases):
        passes = source.random() < rate
        test: dict[str, Any] = {"id": f"c{number}", "input": f"{number}"}
        if clusters is not None:
            test["metadata"] = {"document": f"d{number % clusters}"}
            evalcore["cluster"] = "document"
        if variants is None:
            test["fixtures"] = {"output": "good" if passes else "bad"}
            test["assertions"] = [{"type": "contains", "value": "good"}]
        else:
            test["assertions"] = [{"type": "contains", "value": "good" if passes else "very"}]
        tests.append(test)
    written: dict[str, Any] = {"name": "early", "evalcore": evalcore, "tests": tests}
    if variants is not None:
        evalcore |= {
            "variants": [{"id": name, "target": name} for name in variants],
            "baseline": next(iter(variants)),
        }
        written["targets"] = [
            {"name": name, "provider": "mock", "response": "very good" if whole else "good"}
            for name, whole in variants.items()
        ]
        written["execution"] = {"target": next(iter(variants))}
    path = folder / "early.eval.yaml"
    path.write_text(yaml.safe_dump(written), "utf-8")
    return load_suite(path, LoadOptions())


Night = tuple[LocalStore, Suite, StoredRun, dict[str, Any]]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A store with a run that stopped early, with its suite and its report."""
    folder = tmp_path_factory.mktemp("stopped")
    store, suite = LocalStore(folder / "store"), stopping_suite(folder, 0.97)
    return store, suite, *night(store, suite)


def test_a_run_stops_when_it_is_decided(stopped: Night) -> None:
    _, _, run, report = stopped
    counts = report["counts"]
    assert report["decision"] == "pass"
    assert 0 < counts["completed"] < 150
    assert counts["planned"] == counts["completed"] + counts["skipped"] == 200
    reasons = {item["reason"] for case in report["cases"] for item in case["items"]}
    assert reasons == {None, "decided"}
    assert "of 200 cases" in gates(report)["pass_rate"][1]
    assert gates(report)["errors"][0] == "pass"
    manifest = run.manifest()
    assert isinstance(manifest.settings["order"]["seed"], int)
    assert report_bytes(run) == run.store.get(run.keys.report).data


def test_an_open_decision_runs_all_cases(store: LocalStore, tmp_path: Path) -> None:
    # As many pass as have to, 27: in every order the decision is open until the last case.
    gate = {"gate": "pass_rate", "threshold": 0.9}
    _, report = night(store, stopping_suite(tmp_path, 0.8, gate, cases=30))
    assert report["counts"]["completed"] == 30
    assert report["counts"]["passed"] == 27


THREE: Any = {"gate": "required_cases", "case_ids": ["c1", "c2", "c3"]}
MANY: Any = {"gate": "required_cases", "case_ids": [f"c{number}" for number in range(90)]}
WORSE: Any = {"whole": True, "worse": False}
# The rate of fixtures, the gates, more of the suite, the decision.
DECIDED: dict[str, tuple[float, list[Any], dict[str, Any], str]] = {
    "one failure": (0.5, [{"gate": "pass_rate", "threshold": 1.0}], {}, "fail"),
    "a required case": (0.6, [MANY], {}, "fail"),
    "required cases that pass": (1.0, [PASS_RATE, THREE], {}, "pass"),
    "a regression": (0.6, [{"gate": "no_regressions"}], {"variants": WORSE}, "fail"),
    "a difference": (
        *(0.5, [{"gate": "no_significant_regression", "margin": 0.02}]),
        *({"variants": {"whole": True, "same": True, "worse": False}, "iterations": 2}, "fail"),
    ),
}


@pytest.mark.parametrize(
    ("rate", "decisive", "more", "decision"), DECIDED.values(), ids=DECIDED.keys()
)
def test_what_is_decided_ends_the_run(
    store: LocalStore,
    tmp_path: Path,
    rate: float,
    decisive: list[Any],
    more: dict[str, Any],
    decision: str,
) -> None:
    _, report = night(store, stopping_suite(tmp_path, rate, decisive, **more))
    name = decisive[-1]["gate"]
    assert gates(report)[name][0] == report["decision"] == decision
    assert report["counts"]["skipped"] > 0


def test_the_order_is_the_seeds(store: LocalStore, tmp_path: Path) -> None:
    suite = stopping_suite(tmp_path, 0.8)
    now = datetime.now(UTC)
    runs = [plan_run(suite, store, now=now) for _ in range(2)]
    orders = [[case.id for case in run.cases(0, run.manifest().plan)] for run in runs]
    expected = [case.id for case in suite.cases]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(expected)
    seed = runs[0].manifest().settings["order"]["seed"]
    numbers = list(range(200))
    random.Random(seed).shuffle(numbers)
    assert orders[0] == [expected[number] for number in numbers]
    again = plan_run(suite, store, PlanOptions(seed=seed), now=now)
    assert [case.id for case in again.cases(0, again.manifest().plan)] == orders[0]


def test_a_stopped_run_is_resumed(store: LocalStore, tmp_path: Path) -> None:
    run = plan_run(stopping_suite(tmp_path, 0.97), store, SEEDED, now=datetime.now(UTC))
    stopper = Stopper()
    drain = ExecuteOptions(progress=lambda _: stopper.drain(), stopper=stopper, concurrency=1)
    receipts = execute_run(run, drain)
    assert 0 < len(receipts) < run.manifest().plan.shards
    assert not run.is_decided()
    resumed = find_run(store, run.run_id)
    receipts = execute_run(resumed)
    assert run.is_decided()
    with finish_run(resumed, now=datetime.now(UTC)) as view:
        report = orjson.loads(view.json())
    assert (report["decision"], report["counts"]["skipped"] > 0) == ("pass", True)


def test_processes_stop_when_their_results_have_decided(store: LocalStore, tmp_path: Path) -> None:
    run = plan_run(stopping_suite(tmp_path, 0.97), store, SEEDED, now=datetime.now(UTC))
    execute_run(run, ExecuteOptions(workers=2))
    assert run.is_decided()
    with finish_run(run, now=datetime.now(UTC)) as view:
        report = orjson.loads(view.json())
    assert report["decision"] == "pass"
    assert report["counts"]["skipped"] > 50
    assert report["counts"]["planned"] == 200


def test_a_regraded_run_keeps_what_was_skipped(stopped: Night) -> None:
    store, suite, run, report = stopped
    _, regraded = night(store, suite, PlanOptions(reuse=run.run_id))
    assert regraded["counts"] == report["counts"]
    assert gates(regraded) == gates(report)


@pytest.mark.parametrize(
    "gate", [{"gate": "cost_under", "max": 1}, {"gate": "tokens_under", "max": 9}], ids=str
)
def test_without_a_gate_that_can_be_decided_nothing_is_run(
    store: LocalStore, tmp_path: Path, gate: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match="stop_when_decided needs a gate"):
        night(store, stopping_suite(tmp_path, 0.5, gate))
    assert not list(store.list("runs/"))


def test_a_run_in_random_order_has_the_same_cases_for_the_next(
    store: LocalStore, tmp_path: Path
) -> None:
    gates_of_both: Any = {"gate": "no_drop_from_history", "margin": 0.1}
    suite = stopping_suite(tmp_path, 1.0, gates_of_both, cases=12)
    night(store, suite)
    run, _ = night(store, suite)
    assert len(run.manifest().settings["history"]["runs"]) == 1

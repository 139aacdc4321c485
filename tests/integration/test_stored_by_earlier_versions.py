"""What earlier versions stored is read, decided, resumed, graded and compared as they did it.

Each folder of `tests/stores` is a version: its store, the suites that it was made from, what that
version said of its runs (`expected.json`), and the program that made them (`make.py`).
"""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from filelock import FileLock

from evalcore.history.files import HistoryViews
from evalcore.model.evidence import TOKEN_PARTS
from evalcore.storage.local import LocalStore
from tests.support.reports import stable_report
from tests.support.shell import INLINE, Ended, evalcore

STORED = Path(__file__).parents[1] / "stores" / "v0_1"
# Plans hold the absolute folder of their suite and are signed: it is the one of `make.py`.
PROJECT = Path("/tmp/evalcore-stored-v0_1")
KEY = "a-key-of-the-stored-fixture-alone"

Json = dict[str, Any]


@cache
def expected() -> Json:
    """Return what the earlier version said."""
    document: Json = json.loads((STORED / "expected.json").read_text("utf-8"))
    return document


RUNS = tuple(expected()["runs"])
STOPPED = tuple(expected()["stopped"])
# Cases of stored plans that use an option which is gone: executed again, they are errors.
REMOVED = {"talks": {"batch-1": "batch"}}
# Their calls would be made again, and no server answers.
ASK_MODELS = ("models", "scripts")


def same_files(made: filecmp.dircmp[str]) -> bool:
    """Whether everything on the left is the same on the right."""
    same = not (made.left_only or made.diff_files or made.funny_files)
    return same and all(same_files(inner) for inner in made.subdirs.values())


@pytest.fixture(scope="module", autouse=True)
def _project() -> None:
    """Put the suites where their plans look for them; other processes may do so, too."""
    source = STORED / "project"
    with FileLock(PROJECT.with_name(f"{PROJECT.name}.lock")):
        if PROJECT.exists():
            if same_files(filecmp.dircmp(source, PROJECT)):
                return
            shutil.rmtree(PROJECT)
        copy = PROJECT.with_name(f"{PROJECT.name}.{uuid4().hex}")
        shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        copy.rename(PROJECT)


class Store:
    """A copy of the store that the earlier version made."""

    def __init__(self, folder: Path, unpacked: Path) -> None:
        # Much quicker than unpacking it for each test.
        subprocess.run(["cp", "-a", str(unpacked), str(folder / "store")], check=True)
        self.root = folder / "store"

    def __call__(self, *arguments: str, folder: str = ".") -> Ended:
        keys = {"EVALCORE_PLAN_KEY": KEY, "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}
        return evalcore(*arguments, store=self.root, cwd=PROJECT / folder, env=keys | INLINE)

    def run_folder(self, run_id: str) -> Path:
        (folder,) = self.root.glob(f"runs/*/{run_id}")
        return folder


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store as it was made; no test may change it."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(STORED / "store.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "store"


@pytest.fixture
def store(tmp_path: Path, unpacked: Path) -> Store:
    return Store(tmp_path, unpacked)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory, unpacked: Path) -> Store:
    """A store that tests only read."""
    return Store(tmp_path_factory.mktemp("read"), unpacked)


def grades(report: Json) -> Json:
    """Return what a second execution has to repeat: everything but measures and messages."""
    return {
        "decision": report["decision"],
        "score": report["score"],
        "gates": [(gate["name"], gate["outcome"]) for gate in report["gates"]],
        "items": {
            (case["id"], case["variant"], item["iteration"]): (
                item["status"],
                item["outcome"],
                item["score"],
                [
                    (graded["name"], graded["outcome"], graded["score"], graded["weight"])
                    for graded in item["assertions"]
                ],
            )
            for case in report["cases"]
            for item in case["items"]
        },
    }


MAXIMUM_GATES = ("p95_latency_under", "cost_under", "tokens_under")
ERRORS = re.compile(r"(\d+) of (\d+) items and (\d+) assertions are in error")


def errors_in_present_words(message: re.Match[str]) -> str:
    """Return what the earlier message of the gate `errors` counts, as it is written now."""
    items, planned, assertions = map(int, message.groups())
    parts = [f"{items} of {planned} items"] if items else []
    if assertions:
        parts.append(f"{assertions} assertion" + ("" if assertions == 1 else "s"))
    return f"{' and '.join(parts)} {'is' if items + assertions == 1 else 'are'} in error"


def drop_token_parts(cases: Any) -> None:
    """Leave out the measures of items that later versions have added."""
    for case in cases:
        for item in case["items"]:
            item.pop("finish_reason", None)
            for name in TOKEN_PARTS:
                item["metrics"].pop(name, None)
            for assertion in item["assertions"]:
                (assertion["details"] or {}).pop("unpriced", None)
                if assertion["type"] == "similar":
                    assertion["details"].pop("judge_calls", None)


def without_later_fields(report: Any) -> Any:
    """Return a report without the fields that versions after the store's have added.

    Nor with how many further cases would settle a gate: the estimate for few cases was mended; nor
    with the intervals of differences without variance, which said that the difference was known.
    """
    for name in ("intervals", "tokens", "unpriced_models", "cut_answers"):
        report["summary"].pop(name, None)
    drop_token_parts(report["cases"])
    with_measures_apart(report)
    for gate in report["gates"]:
        gate.pop("remedy", None)
        gate["details"].pop("allowed", None)
        if gate["name"] in MAXIMUM_GATES:
            gate["details"].pop("value", None)
        if gate["name"] == "errors":
            gate["message"] = ERRORS.sub(errors_in_present_words, gate["message"])
        gate["message"] = re.sub(r"\d+ more cases", "more cases", gate["message"])
        for variant in gate["details"].get("variants", ()):
            variant.pop("more_cases", None)
            if without_certainty(variant):
                gate.pop("message", None)
    return report


def without_certainty(difference: Json) -> bool:
    """Take out an interval of equal differences, as it was ([0, 0]) or is; whether it was one."""
    low, high = difference.get("low"), difference.get("high")
    if low is None or (low != high and "extended" not in difference["method"]):
        return False
    for name in ("low", "high", "method"):
        del difference[name]
    return True


def with_measures_apart(report: Any) -> None:
    """Take the measures out of what differs from the baseline: later versions list them apart."""
    measures = ("latency", "cost", "tokens")
    totals = {"regressions": 0, "improvements": 0}
    for candidate in report["comparison"]:
        candidate.pop("measures", None)
        without_certainty(candidate.get("score") or {})
        for name in totals:
            entries = [each for each in candidate[name] if each["kind"] not in measures]
            candidate[name] = entries
            counts = candidate["counts"][name]
            candidate["counts"][name] = {k: n for k, n in counts.items() if k not in measures}
            totals[name] += sum(candidate["counts"][name].values())
    summary = report.get("summary", report)
    summary |= totals


def drop_points(before: Any, now: Any) -> None:
    """Drop the intervals of differences that were points from both reports.

    No variance is not certainty (docs/reference/statistics.md): these have a width now.
    """
    for old, new in zip(before["comparison"], now["comparison"], strict=True):
        drop_point(old["score"], new["score"])
    for old, new in zip(before.get("gates", ()), now.get("gates", ()), strict=True):
        sides = (gate["details"].get("variants", ()) for gate in (old, new))
        points = [drop_point(*side) for side in zip(*sides, strict=True)]
        if any(points):
            del old["message"], new["message"]


def drop_point(before: Any, now: Any) -> bool:
    """Drop the interval of both if it was a point, and return whether it was."""
    if before.get("low") is None or before["low"] != before["high"]:
        return False
    assert now["low"] < before["low"] < now["high"]
    for name in ("low", "high", "method"):
        del before[name], now[name]
    return True


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_run_has_the_report_that_it_had(read: Store, name: str) -> None:
    run = expected()["runs"][name]
    ended = read("report", run["run"], "--json")
    before, now = without_later_fields(run["report"]), without_later_fields(ended.report)
    drop_points(before, now)
    assert (ended.code, now) == (0, before)


def test_stored_runs_are_listed_as_they_were(read: Store) -> None:
    before = expected()["list"]
    now = json.loads(read("runs", "list", "--json").out)
    # Later versions add fields.
    kept = [{key: new[key] for key in old} for old, new in zip(before, now, strict=True)]
    assert kept == before


@pytest.mark.parametrize("name", ["with-baseline", *STOPPED])
def test_a_stored_manifest_is_shown_with_all_its_facts(read: Store, name: str) -> None:
    run = (expected()["runs"] | expected()["stopped"])[name]
    stored = json.loads((read.run_folder(run["run"]) / "manifest.json").read_text("utf-8"))
    shown = read("runs", "show", run["run"], "--json").report
    assert {key: shown[key] for key in stored} == stored


# Of each format one.
@pytest.mark.parametrize("name", ["checks", "gates", "code-workflow", "route-generator"])
def test_a_shard_of_a_stored_plan_is_executed_and_decided_again(store: Store, name: str) -> None:
    """The plan, the evidence of the other shards, the gates: everything is read."""
    run = expected()["runs"][name]
    (store.run_folder(run["run"]) / "results" / "00000.parquet").unlink()
    ended = store("runs", "verify", run["run"], "--repair", "--json", folder=run["folder"])
    assert (ended.code, ended.report["repaired"]) == (0, [0]), ended
    report = store("report", run["run"], "--json").report
    again, before = grades(report), grades(run["report"])
    for case, option in REMOVED.get(name, {}).items():
        (items,) = (each["items"] for each in report["cases"] if each["id"] == case)
        assert all(option in item["error"]["message"] for item in items)
        for graded in (again, before):
            graded.pop("score", None)
            del graded["items"][case, "default", 0]
    assert again == before


@pytest.mark.parametrize("name", STOPPED)
def test_a_run_that_was_stopped_goes_on_to_the_report_of_an_undisturbed_one(
    store: Store, name: str
) -> None:
    run = expected()["stopped"][name]
    parts = {
        part: part.read_bytes() for part in store.run_folder(run["run"]).glob("results/*.parquet")
    }
    assert len(parts) == run["committed"]
    ended = store("run", "--resume", run["run"], "--json", folder=run["folder"])
    assert ended.code == 0, ended
    assert grades(ended.report) == grades(expected()["runs"]["slow"]["report"])
    assert {part: part.read_bytes() for part in parts} == parts


@pytest.mark.parametrize("name", ["checks", "blocks", "models"])
def test_stored_evidence_is_graded_again(store: Store, name: str) -> None:
    run = expected()["runs"][name]
    mode = ["--mode", "replay"] if name in ASK_MODELS else []
    ended = store("regrade", run["run"], "--json", *mode, folder=run["folder"])
    wanted = expected()["runs"]["regraded" if name == "checks" else name]
    assert (ended.code, grades(ended.report)) == (wanted["code"], grades(wanted["report"])), ended


def test_stored_runs_are_compared_as_they_were(read: Store) -> None:
    runs = expected()["runs"]
    ended = read("compare", runs["slow"]["run"], runs["reused"]["run"], "--json")
    before, now = expected()["compared"], ended.report
    with_measures_apart(before)
    with_measures_apart(now)
    drop_points(before, now)
    assert now == before


def test_a_stored_run_is_a_baseline_of_a_new_one(store: Store) -> None:
    flags = ("--baseline", "main", "--json")
    ended = store("run", "suite.eval.yaml", *flags, folder="route-generator")
    run = expected()["runs"]["with-baseline"]
    assert ended.report["comparison"][0]["run"] == run["report"]["comparison"][0]["run"]
    assert grades(ended.report) == grades(run["report"])


@pytest.mark.parametrize(
    ("name", "files"),
    [("models", ("models.eval.yaml",)), ("scripts", ("script.yaml", "suite.yaml"))],
)
def test_stored_recordings_are_replayed(store: Store, name: str, files: tuple[str, ...]) -> None:
    run = expected()["runs"][name]
    ended = store("run", "--mode", "replay", "--json", *files, folder=run["folder"])
    assert grades(ended.report) == grades(run["report"]), ended
    if name == "models":
        cases = ended.report["cases"]
        drop_token_parts(cases)
        before = expected()["runs"]["models-replayed"]["report"]["cases"]
        # The order of keys may be another one.
        now, then = (json.dumps(each, sort_keys=True) for each in (cases, before))
        assert stable_report(now) == stable_report(then)


def test_what_a_stored_run_executed_of_python_is_executed_again_once(store: Store) -> None:
    """Its digest of code is that of the modules that it imported."""
    first = store("run", "slow.eval.yaml", "--reuse", "--json", folder="slow")
    assert first.report["run"]["reused"] == []
    ended = store("run", "slow.eval.yaml", "--reuse", "--json", folder="slow")
    assert [run["items"] for run in ended.report["run"]["reused"]] == [24]
    assert grades(ended.report) == grades(expected()["runs"]["slow"]["report"])


def test_stored_runs_enter_the_history_as_their_reports_say(store: Store) -> None:
    ended = store("history", "sync", "--json")
    assert (ended.code, ended.report["damaged"]) == (0, {}), ended
    with HistoryViews(LocalStore(store.root)) as history:
        for name in RUNS:
            report = expected()["runs"][name]["report"]
            counts = ", ".join(f"sum({name})::BIGINT" for name in report["counts"])
            row = history.connection.execute(
                f"SELECT {counts} FROM runs WHERE run_id = $1", [expected()["runs"][name]["run"]]
            ).fetchone()
            assert row == tuple(report["counts"].values()), name

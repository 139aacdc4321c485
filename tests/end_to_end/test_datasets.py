"""`evalcore dataset`, and suites whose cases are a dataset's."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore import SuiteError, define_suite, run_suite, variant
from evalcore.datasets.store import read_dataset
from evalcore.formats.options import LoadOptions
from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import plan_run
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from tests.support.pending_captures import write_captures
from tests.support.shell import Ended, evalcore

LINES = """\
{"id": "a", "input": "q1", "output": "yes", "assertions": [{"type": "contains", "value": "yes"}]}
{"id": "b", "input": "q2", "output": "yes", "assertions": [{"type": "contains", "value": "yes"}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cases.jsonl").write_text(LINES)
    return tmp_path


def command(folder: Path, *words: str) -> Ended:
    return evalcore(*words, store=folder / "store", cwd=folder)


def listed(folder: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(command(folder, "dataset", "list", "--json").out)
    return rows


SUITES = {
    "test file": "tests: dataset:support@1\n",
    "latest of a test file": "tests: [dataset:support@latest]\n",
    "suite": "cases: dataset:support\nflow: nothing:here\nvariants: [{id: a}]\n",
}


@pytest.mark.parametrize("text", SUITES.values(), ids=SUITES.keys())
def test_a_suite_runs_the_cases_of_a_dataset(folder: Path, text: str) -> None:
    command(folder, "dataset", "import", "cases.jsonl", "--as", "support")
    (folder / "suite.yaml").write_text(f"name: s\n{text}")
    ended = command(folder, "run", "suite.yaml", "--json")
    assert ended.code == 0, ended.err
    assert [case["id"] for case in ended.report["cases"]] == ["a", "b"]


def answer(question: str) -> str:
    return question


def test_a_suite_in_python_runs_the_cases_of_a_dataset(folder: Path) -> None:
    store = folder / "store"
    suite = define_suite(
        name="s", flow=answer, variants=[variant("v")], cases="dataset:support@latest"
    )
    with pytest.raises(SuiteError, match="no dataset 'support'"):
        run_suite(suite, store=store)
    command(folder, "dataset", "import", "cases.jsonl", "--as", "support")
    assert run_suite(suite, store=store).summary.passed_cases == 2


def test_a_planned_run_sees_no_later_version(folder: Path) -> None:
    command(folder, "dataset", "import", "cases.jsonl", "--as", "support")
    (folder / "suite.yaml").write_text("name: s\ntests: dataset:support@latest\n")
    store = LocalStore(folder / "store")
    options = LoadOptions().configured(Settings(), os.environ, str(folder / "store"))
    run = plan_run(load_suite(folder / "suite.yaml", options), store, now=datetime.now(UTC))
    (folder / "more.jsonl").write_text(LINES.replace('"a"', '"c"').replace("yes", "no"))
    command(folder, "dataset", "import", "more.jsonl", "--as", "support")
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC)):
        manifest = run.manifest()
    (source,) = manifest.settings["datasets"]
    assert (source["name"], source["version"], manifest.plan.cases) == ("support", 1, 2)
    assert source["sha256"] == read_dataset(store, "support").versions[0].sha256
    assert manifest.decision == "pass"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dataset:suport@1", "no dataset 'suport' in {store}. Did you mean 'support'?"),
        ("dataset:support@7", "version 7 of dataset 'support' does not exist. Versions: 1, latest"),
        ("dataset:support@new", "a version is a number such as support@3, or support@latest"),
    ],
)
def test_a_dataset_that_is_not_there_is_a_mistake_of_the_suite(
    folder: Path, name: str, message: str
) -> None:
    command(folder, "dataset", "import", "cases.jsonl", "--as", "support")
    (folder / "suite.yaml").write_text(f"name: s\ntests: {name}\n")
    ended = command(folder, "validate", "suite.yaml")
    assert ended.code == 2
    assert "suite.yaml:2: tests: " in ended.err
    assert message.format(store=LocalStore(folder / "store").url) in ended.err


def test_cases_of_a_dataset_are_data(folder: Path) -> None:
    (folder / "suite.yaml").write_text(
        "name: s\ntests: dataset:support\nassertions: [{type: contains, value: EVAL_NAME}]\n"
    )
    line = {"id": "a", "input": "${{ EVAL_NAME }}", "output": "${{ EVAL_NAME }}"}
    (folder / "cases.jsonl").write_text(json.dumps(line))
    command(folder, "dataset", "import", "cases.jsonl", "--as", "support")
    ended = evalcore(
        "run", "suite.yaml", "--json", store=folder / "store", cwd=folder, env={"EVAL_NAME": "Ida"}
    )
    assert ended.code == 0, ended.err + ended.out


def test_captures_are_promoted_and_refused_by_flags(folder: Path) -> None:
    write_captures(LocalStore(folder / "store"), {"Where is it?": "In Oslo", "b": "2", "c": "3"})
    (folder / "checks.yaml").write_text("- {type: contains, value: Oslo}\n")
    shown = command(folder, "dataset", "show", "support", "--pending", "--json").report
    ids = {capture["input"]: capture["id"] for cluster in shown["clusters"]
           for capture in cluster["captures"]}  # fmt: skip
    words = ("dataset", "promote", "support", "--ids")
    flags = ("--assert", "checks.yaml", "--expect-output", "--json")
    promoted = command(folder, *words, ids["Where is it?"][:12], *flags)
    assert promoted.report["version"] == 1, promoted.err
    assert command(folder, *words, ids["b"], "--refuse", "--json").report["refused"] == 1
    assert listed(folder) == [{"name": "support", "version": 1, "cases": 1, "pending": 1}]
    (folder / "suite.yaml").write_text("name: s\ntests: dataset:support@1\n")
    assert command(folder, "run", "suite.yaml").code == 0
    assert command(folder, "dataset", "promote", "support", "--all").code == 0
    difference = command(folder, "dataset", "diff", "support@1", "support@2", "--json").report
    assert difference == {"added": [f"capture-{ids['c'][:12]}"], "removed": [], "changed": []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["promote", "support"], "which captures? --all, or --ids"),
        (["promote", "other", "--all"], "dataset 'other' has no pending captures"),
        (["promote", "support", "--all", "--ids", "a"], "--all, or --ids"),
        (["promote", "support", "--ids", "ffff"], "no single pending capture"),
        (["promote", "support", "--all", "--assert", "none.yaml"], "none.yaml"),
        (["show", "nothing"], "no dataset 'nothing'"),
        (["drop", "support@latest"], "name the version to drop"),
        (["pin", "support"], "name the version to pin"),
        (["import", "cases.jsonl", "--as", "a@1"], "invalid dataset name"),
    ],
)
def test_what_cannot_be_done_says_what_would_work(
    folder: Path, words: list[str], message: str
) -> None:
    write_captures(LocalStore(folder / "store"), {"a": "1"})
    ended = command(folder, "dataset", *words)
    assert ended.code == 2
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert [row["pending"] for row in listed(folder)] == [1]

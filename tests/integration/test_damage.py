"""A damaged run is told as damaged, with the place: no form reports fewer rows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from evalcore.cli.main import call
from evalcore.formats.registry import load_suite
from evalcore.pipeline import plan as plan_module
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.lease import read_lease
from evalcore.pipeline.plan import plan_run
from evalcore.planning import spool as spool_module
from evalcore.storage.address import open_store
from evalcore.storage.runs import find_run
from tests.support.damaging import (
    CASES,
    OF_MANIFESTS,
    OF_PLANS,
    Damage,
    of_part,
)
from tests.support.reports import stable_report
from tests.support.servers import BUCKET, S3Server

NAME = "damaged"
Shell = Callable[..., "Ended"]


class Ended(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module", autouse=True)
def _small_parts() -> Iterator[None]:
    """Let few cases make several parts and shards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool_module, "PART_CASES", 20)
        patch.setattr(plan_module, "PART_CASES", 20)
        patch.setattr(plan_module, "_MIN_LOCAL_SHARD_ITEMS", 1)
        yield


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    check = {"type": "contains", "value": "answer"}
    (folder / "cases.jsonl").write_text(
        "".join(
            json.dumps({"id": f"c{n}", "input": f"q{n}", "fixtures": {"output": f"answer {n}"}})
            + "\n"
            for n in range(CASES)
        )
    )
    path = folder / "suite.eval.yaml"
    whole = {"name": NAME, "tests": "cases.jsonl", "assertions": [check]}
    path.write_text(json.dumps({**whole, "evalcore": {"iterations": 2}}))
    return path


@pytest.fixture(scope="module")
def whole(suite: Path) -> Path:
    """A store with a completed run, copied by each test."""
    store = suite.parent / "whole"
    assert call(["run", str(suite), "--store", str(store), "--report", "html"]) == 0
    return store


@pytest.fixture
def store(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "store"
    shutil.copytree(whole, copy)
    monkeypatch.setenv("EVALCORE_STORE", str(copy))
    return copy


@pytest.fixture
def shell(store: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    def run(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = call([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    assert store.exists()
    return run


def folder_of(store: Path) -> Path:
    (folder,) = (store / "runs" / NAME).iterdir()
    return folder


def assert_told(ended: Ended) -> None:
    assert ended.code == 4, ended
    assert "is damaged" in ended.err, ended
    for fault in ("unexpected fault", "Traceback", "pydantic", "validation error"):
        assert fault not in ended.err, ended
    assert len(ended.err.splitlines()) == 1, ended


def assert_told_as_json(ended: Ended) -> None:
    assert_told(ended)
    document = json.loads(ended.out)
    assert document["decision"] == "error"
    assert document["damaged"]
    assert document["gates"][0]["outcome"] == "fail"
    assert not document["cases"]


REPRESENTATIVE = {
    "a shard": of_part("rows missing"),
    "the manifest": OF_MANIFESTS["bytes: torn"],
    "the plan": OF_PLANS["the suite: torn"],
    "the cases": OF_PLANS["the first cases: torn"],
    "the signature": OF_PLANS["the signature: torn"],
}


@pytest.mark.parametrize("damage", REPRESENTATIVE.values(), ids=REPRESENTATIVE.keys())
def test_every_command_that_reads_a_run_tells_its_damage(
    store: Path, shell: Shell, suite: Path, damage: Damage
) -> None:
    folder = folder_of(store)
    damage(folder)
    run = folder.name
    for arguments in (
        ("report", run),
        ("run", "--resume", run),
        ("run", "--resume", run, "--workers", "2"),
        ("compare", run, run),
        ("baseline", "set", NAME, run),
        ("regrade", run, suite),
        ("report", run, "--export", store / "rows.csv"),
    ):
        ended = shell(*arguments)
        assert_told(ended)
        assert ended.out == ""
        assert_told_as_json(shell(*arguments, "--json"))
    assert not (store / "rows.csv").exists()
    for form in ("markdown", "html", "junit", "github"):
        ended = shell("report", run, f"--{form}")
        assert_told(ended)
        assert ended.out == ""
    assert shell("runs", "show", run).code == 4
    assert shell("runs", "verify", run).code == 4


def test_one_damaged_run_does_not_break_the_list(store: Path, shell: Shell, suite: Path) -> None:
    folder = folder_of(store)
    OF_MANIFESTS["bytes: a list"](folder)
    assert shell("run", suite).code == 0
    ended = shell("runs", "list", "--json")
    states = {run["id"]: run["state"] for run in json.loads(ended.out)}
    assert (ended.code, states.pop(folder.name), *states.values()) == (0, "damaged", "completed")
    assert f"{folder.name}  damaged" in shell("runs", "list").out


REPAIRED = {
    name: of_part(name)
    for name in ("torn", "rows missing", "swapped with another", "deleted", "a byte flipped")
}


@pytest.mark.parametrize("damage", REPAIRED.values(), ids=REPAIRED.keys())
def test_a_repaired_run_gives_the_report_of_the_undamaged_one(
    store: Path, shell: Shell, damage: Damage
) -> None:
    folder = folder_of(store)
    undamaged = shell("report", folder.name, "--json").out
    damage(folder)
    ended = shell("runs", "verify", folder.name, "--repair", "--json")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    assert (document["whole"], document["damaged"], document["decision"]) == (True, [], "pass")
    assert 1 in document["repaired"]
    report = shell("report", folder.name, "--json")
    assert stable_report(report.out) == stable_report(undamaged)


def test_what_a_repair_takes_out_is_kept(store: Path, shell: Shell) -> None:
    folder = folder_of(store)
    of_part("a byte flipped")(folder)
    flipped = (folder / "results" / "00001.parquet").read_bytes()
    assert shell("runs", "verify", folder.name, "--repair").code == 0
    (kept,) = (folder / "damaged").iterdir()
    assert kept.read_bytes() == flipped
    assert kept.name.startswith("00001-")


@pytest.mark.parametrize("damage", [OF_PLANS["the first cases: torn"], OF_MANIFESTS["fewer cases"]])
def test_what_no_execution_mends_is_left_as_it_is(
    store: Path, shell: Shell, damage: Damage
) -> None:
    folder = folder_of(store)
    damage(folder)
    of_part("rows missing")(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ended = shell("runs", "verify", folder.name, "--repair")
    assert (ended.code, "from a copy" in ended.err) == (4, True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_part_that_is_damaged_before_the_run_ends_is_repaired_too(
    store: Path, shell: Shell, suite: Path
) -> None:
    run = plan_run(load_suite(suite), open_store(str(store)), now=datetime.now(UTC))
    execute_run(run)
    folder = store / "runs" / NAME / run.run_id
    of_part("rows missing")(folder)
    assert_told(shell("run", "--resume", run.run_id))
    assert shell("runs", "verify", run.run_id).code == 4
    assert shell("runs", "verify", run.run_id, "--repair").code == 0
    assert shell("report", run.run_id).code == 0


@pytest.mark.parametrize(
    "damage", [OF_PLANS["the suite: deleted"], OF_PLANS["the first cases: torn"]]
)
@pytest.mark.parametrize("command", [("run", "--workers", "2", "--resume"), ("run", "--resume")])
def test_a_planned_run_whose_plan_is_damaged_is_not_begun(
    store: Path, shell: Shell, suite: Path, damage: Damage, command: tuple[str, ...]
) -> None:
    run = plan_run(load_suite(suite), open_store(str(store)), now=datetime.now(UTC))
    damage(store / "runs" / NAME / run.run_id)
    assert_told(shell(*command, run.run_id))
    assert read_lease(run) is None


def test_a_damaged_baseline_decides_nothing(store: Path, shell: Shell, suite: Path) -> None:
    folder = folder_of(store)
    assert shell("baseline", "set", NAME, folder.name).code == 0
    of_part("rows missing")(folder)
    ended = shell("run", suite, "--gate", "no_regressions", "--json")
    report = json.loads(ended.out)
    assert (ended.code, report["decision"]) == (3, "inconclusive")
    (gate,) = (gate for gate in report["gates"] if gate["outcome"] == "inconclusive")
    assert "is damaged: shard 1 has 19 of 21 rows" in gate["message"]


def test_nothing_is_reused_from_a_damaged_run(store: Path, shell: Shell, suite: Path) -> None:
    folder = folder_of(store)
    of_part("an outcome edited")(folder)
    ended = shell("run", suite, "--reuse", "--json")
    assert (ended.code, json.loads(ended.out)["counts"]["passed"]) == (0, 2 * CASES)
    assert "nothing is taken from an earlier run" in ended.err


@pytest.mark.s3
def test_damage_in_a_bucket_is_told_and_repaired(
    s3: S3Server, shell: Shell, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_STORE", f"s3://{BUCKET}/{uuid4().hex}")
    assert s3.url
    report = json.loads(shell("run", suite, "--json").out)
    bucket = open_store(os.environ["EVALCORE_STORE"])
    run = find_run(bucket, report["run"]["id"])
    bucket.put(run.keys.result(0), bucket.get(run.keys.result(0)).data[:-1000])
    bucket.delete(run.keys.result(2))
    ended = shell("report", run.run_id, "--json")
    assert_told_as_json(ended)
    assert [damage["shard"] for damage in json.loads(ended.out)["damaged"]] == [2]
    ended = shell("runs", "verify", run.run_id, "--repair", "--json")
    assert (ended.code, json.loads(ended.out)["repaired"]) == (0, [0, 2])
    assert json.loads(shell("report", run.run_id, "--json").out)["counts"] == report["counts"]

"""`runs list` shows what became of each run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from evalcore.cli.runs import runs
from evalcore.model.run import State
from evalcore.storage.local import LocalStore
from tests.support.leases import ended_process, put_lease
from tests.support.stored_manifests import put_manifest

OPEN: dict[str, Any] = {"state": State.RUNNING, "decision": None, "counts": None, "ended_at": None}
RUN = "20260518T100000Z-aaaaaa"


def listed(store: Path, *flags: str) -> str:
    result = CliRunner().invoke(runs, ["list", "--store", str(store), *flags])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_figures_come_from_the_manifest(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    facts = {"score": 0.75, "pass_rate": 0.5, "cost_usd": 0.25, "p50_latency_ms": 1.0}
    put_manifest(store, "20260519T100000Z-bbbbbb", execution=facts)
    put_manifest(store, RUN)
    first, second = json.loads(listed(tmp_path, "--json"))
    assert (first["score"], first["pass_rate"], first["cost_usd"]) == (0.75, 0.5, 0.25)
    assert (second["score"], second["pass_rate"]) == (None, None)
    assert [run["id"] for run in (first, second)] == ["20260519T100000Z-bbbbbb", RUN]
    lines = listed(tmp_path).splitlines()
    assert lines[0].split()[:2] == ["RUN", "DECISION"]
    assert "0.7500" in lines[1]
    assert "50.0%" in lines[1]
    assert listed(tmp_path, "--limit", "1", "--json").count('"id"') == 1


def test_a_run_of_a_process_that_ended_is_interrupted(tmp_path: Path) -> None:
    run = put_manifest(LocalStore(tmp_path), RUN, **OPEN)
    put_lease(run, ended_process())
    (entry,) = json.loads(listed(tmp_path, "--json"))
    assert (entry["state"], entry["interrupted"]) == ("running", True)
    assert "interrupted" in listed(tmp_path)
    shown = CliRunner().invoke(runs, ["show", RUN, "--store", str(tmp_path)])
    assert "state        interrupted" in shown.stdout


def test_show_says_in_words_what_became_of_the_items(tmp_path: Path) -> None:
    counts = {"planned": 1, "completed": 1, "error": 0, "passed": 0, "failed": 1}
    put_manifest(LocalStore(tmp_path), RUN, counts=counts)
    shown = CliRunner().invoke(runs, ["show", RUN, "--store", str(tmp_path)])
    assert "counts       1 planned, 1 completed, 1 failed\n" in shown.stdout

"""A backup of the database and then of the store, taken while the service runs, is restored."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.support.service import eval_body, service

pytestmark = [
    pytest.mark.extended,
    pytest.mark.multiprocess,
    pytest.mark.slow,
    pytest.mark.xdist_group("service"),
]


def test_a_restored_service_has_evals_results_and_large_payloads(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with service(first, "--rate", "0") as running:
        workflow = running.register()
        large = eval_body(workflow, {"kind": "exists"}, path="vendor.name")
        large["source"]["handle_inputs"]["input-json-1"]["data"] = "x" * 100_000
        running.post("/v1/workflows/evals", large)
        run = running.run(workflow)
        saved = running.get("/v1/workflows/evals", workflow_id=workflow)
        results = running.results(run)
        database = sqlite3.connect(first / "evalcore.db")
        copy = sqlite3.connect(second / "evalcore.db")
        with contextlib.closing(database), contextlib.closing(copy):
            database.backup(copy)
        shutil.copytree(first / ".evalcore", second / ".evalcore")
    assert run["counts"]["outcome"]["passed"] == 1
    assert len(results[0]["handle_inputs"]["input-json-1"]["data"]) == 100_000
    shutil.rmtree(first)
    with service(second, "--rate", "0") as running:
        assert running.get("/v1/workflows/evals", workflow_id=workflow) == saved
        assert running.results(run) == results
        assert running.run(workflow)["counts"]["outcome"]["passed"] == 1

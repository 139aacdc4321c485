"""A machine without room for a program's files (TMPDIR) ends the run and is no error of an item."""

from __future__ import annotations

import json
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import StoreError
from evalcore.formats.registry import load_suite
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust import machine_faults

TESTS: dict[str, Any] = {
    "tests": [
        {"id": "a", "input": "hi", "assertions": [{"type": "equals", "value": "hi"}]},
        {"id": "b", "input": "ho", "assertions": [{"type": "equals", "value": "ho"}]},
    ]
}
GRADER = {"type": "code-grader", "command": ["sh", "-c", "cat > /dev/null; echo '{\"score\": 1}'"]}


def answered_by(**target: Any) -> dict[str, Any]:
    return {**TESTS, "execution": {"target": "t"}, "targets": [{"name": "t", **target}]}


SUITES = {
    "command, standard input": answered_by(provider="command", command=["cat"]),
    "grader": {
        "tests": [
            {"id": name, "input": name, "fixtures": {"output": name}, "assertions": [GRADER]}
            for name in "ab"
        ]
    },
}


class Pauses:
    """Pauses of no length; in the second one the folder is there again."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[float]:
        yield 0.0
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
        yield 0.0


@pytest.fixture(params=list(SUITES.values()), ids=list(SUITES))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> StoredRun:
    path = tmp_path / "s.eval.yaml"
    path.write_text(json.dumps(request.param))
    return plan_run(
        load_suite(path), LocalStore(tmp_path / "store"), PlanOptions(), now=datetime.now(UTC)
    )


@pytest.fixture
def gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    return tmp_path / "gone"


def states_of(run: StoredRun) -> dict[str, int]:
    execute_run(run)
    with finish_run(run, now=datetime.now(UTC)) as view:
        counts: dict[str, int] = json.loads(view.json())["counts"]
    return {name: counts[name] for name in ("passed", State.ERROR.value)}


def test_a_tmpdir_that_stays_away_stops_the_run_and_its_resume_has_no_error(
    run: StoredRun, gone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "_RETRIES_S", Pauses(None))

    with pytest.raises(StoreError, match=f"cannot write below {gone}: No such file"):
        execute_run(run)
    assert not run.written_shards()

    gone.mkdir()
    assert states_of(run) == {"passed": 2, "error": 0}


def test_a_tmpdir_that_is_gone_for_a_moment_costs_no_item(
    run: StoredRun, gone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "_RETRIES_S", Pauses(gone))

    assert states_of(run) == {"passed": 2, "error": 0}


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_workspace_without_room_stops_the_run_and_its_resume_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "_RETRIES_S", Pauses(None))
    monkeypatch.setenv("EVALCORE_WORKSPACES", str(tmp_path / "workspaces"))
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "large.bin").write_bytes(bytes(1 << 20))
    suite = answered_by(provider="command", command=["cat"]) | {
        "workspace": {"template": "template", "isolation": "per_test"}
    }
    (tmp_path / "s.eval.yaml").write_text(json.dumps(suite))
    store = LocalStore(tmp_path / "store")
    run = plan_run(
        load_suite(tmp_path / "s.eval.yaml"), store, PlanOptions(), now=datetime.now(UTC)
    )

    with no_file_larger_than(1 << 19), pytest.raises(StoreError, match="no workspace can be made"):
        execute_run(run)
    assert not run.written_shards()

    assert states_of(run) == {"passed": 2, "error": 0}

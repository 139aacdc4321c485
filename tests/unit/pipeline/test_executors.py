"""How many processes execute a run if nobody says it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalcore.formats.registry import load_suite
from evalcore.pipeline import executors
from evalcore.pipeline.executors import worker_count
from evalcore.pipeline.plan import plan_run
from evalcore.storage.local import LocalStore

CASES = 12
INSTANT: dict[str, Any] = {"fixtures": {"output": "yes"}}


def count(folder: Path, **more: Any) -> int:
    """Return how many processes execute a suite of fixtures, with more in each case."""
    checks = [{"type": "contains", "value": "yes"}]
    case = {"input": "x", "assertions": checks, **INSTANT, **more}
    lines = (json.dumps({"id": f"c{number}", **case}) + "\n" for number in range(CASES))
    (folder / "cases.jsonl").write_text("".join(lines))
    suite = load_suite(folder / "cases.jsonl")
    run = plan_run(suite, LocalStore(folder / "store"), now=datetime.now(UTC))
    return worker_count(suite, run.manifest().plan)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few items be worth a process, on a machine with four cores."""
    monkeypatch.setattr(executors, "_MANY_ITEMS", CASES)
    monkeypatch.setattr(executors, "usable_cores", lambda: 4)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("more", "processes"),
    [
        ({}, 4),
        ({"assertions": [{"type": "llm-grader", "prompt": "Is it?"}]}, 1),
        ({"workspace": {"template": "."}}, 1),
    ],
    ids=["fixtures", "judged", "in-workspaces"],
)
def test_only_suites_that_wait_for_nothing_have_several_processes(
    more: dict[str, Any], processes: int, tmp_path: Path
) -> None:
    assert count(tmp_path, **more) == processes


@pytest.mark.parametrize(
    ("quota", "memory", "processes"),
    [("max 100000", 64 << 30, 8), ("150000 100000", 64 << 30, 2), ("max 100000", 1 << 30, 2)],
    ids=["the-most", "cores-of-a-container", "memory-of-a-container"],
)
def test_a_container_has_no_more_processes_than_it_may_use(
    quota: str, memory: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(executors, "_MANY_ITEMS", CASES)
    monkeypatch.setattr("evalcore.trust.processes._QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(executors, "total_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert count(tmp_path) == processes

"""How many shards a run may have is settled when it is planned, and holds after its pilot."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evalcore.pipeline import plan
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.planning import shards
from evalcore.planning.shards import MAX_LANE_SHARDS
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun

NOW = datetime(2026, 5, 18, 10, 0, tzinfo=UTC)


def planned(folder: Path, *, single_items: bool = False) -> StoredRun:
    (folder / "s.eval.yaml").write_text(
        "name: settled\n"
        "targets: [{name: quick, provider: mock, response: hello, latency_ms: 1}]\n"
        "execution: {target: quick}\n"
        "assertions: [{type: contains, value: hello}]\n"
        "tests: cases.jsonl\n"
    )
    lines = (json.dumps({"id": f"c{number}", "input": "x"}) for number in range(550))
    (folder / "cases.jsonl").write_text("\n".join(lines))
    options = PlanOptions(workers=30, single_items=single_items)
    return plan_run(load(folder / "s.eval.yaml"), LocalStore(folder / "store"), options, now=NOW)


@pytest.mark.parametrize("single_items", [True, False])
def test_a_run_notes_how_many_shards_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, single_items: bool
) -> None:
    monkeypatch.setattr(shards, "MAX_SHARDS", 10)
    monkeypatch.setattr(shards, "MAX_SHARD_ITEMS", 5)
    manifest = planned(tmp_path, single_items=single_items).manifest()
    assert manifest.settings["max_shards"] == (10 if single_items else 110)


@pytest.mark.parametrize(("most", "count"), [(3, 4), (MAX_LANE_SHARDS, 105)])
def test_the_shards_after_the_pilot_are_no_more_than_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, count: int
) -> None:
    monkeypatch.setattr(plan, "most_shards", lambda *_, **__: most)
    run = planned(tmp_path)
    execute_run(run)
    assert run.manifest().plan.shards == count

"""Shards of given outputs are larger where each of them is a task run of Prefect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalcore.pipeline.plan import PlanOptions, load, plan_size
from evalcore.planning.shards import MAX_SHARD_ITEMS, MAX_TASK_ITEMS

CASES = 60_000


@pytest.mark.parametrize(
    ("output", "single_items", "size"),
    [
        ("[1]", True, MAX_TASK_ITEMS),
        ("[1]", False, MAX_SHARD_ITEMS),
        (json.dumps("x" * 4_000), True, MAX_SHARD_ITEMS),
    ],
    ids=["task runs", "no task runs", "large cases"],
)
def test_size_of_shards(output: str, single_items: bool, size: int, tmp_path: Path) -> None:
    suite = tmp_path / "suite.jsonl"
    case = {"input": "x", "fixtures": {"output": output}, "assertions": [{"type": "is-json"}]}
    lines = (json.dumps({"id": f"c{number}", **case}) for number in range(CASES))
    suite.write_text("\n".join(lines))
    options = PlanOptions(single_items=single_items)
    assert plan_size(load(suite), options, latency_s=None).shard_size == size

"""What did not pass, as people are shown it: in which order, and why items were skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.analytics.summary import Aggregates
from evalcore.model.run import Plan
from evalcore.model.suite import Policy, ScoreRule
from evalcore.sql.rows import write_rows

ENDS: list[dict[str, Any]] = [
    {"status": "skipped", "reason": "budget"},
    {"status": "completed", "outcome": "blocked", "score": 0.0},
    {"status": "completed", "outcome": "passed", "score": 1.0, "output": "fine"},
    {"status": "skipped", "reason": "filter"},
    {"status": "completed", "outcome": "failed", "score": 0.0, "output": "wrong"},
    {"status": "error", "error": {"kind": "timeout", "message": "late"}},
    {"status": "skipped", "reason": "budget"},
    {"status": "skipped"},
    {"status": "skipped", "reason": "not for this target"},
]


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Aggregates]:
    lines = [
        orjson.dumps(
            {"item": item, "case_id": f"c{item}", "variant": "default", "iteration": 0, **end},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        for item, end in enumerate(ENDS)
    ]
    write_rows(lines, tmp_path / "0.parquet")
    size = len(ENDS)
    plan = Plan(size, size, variants=1, iterations=1, shards=1, shard_size=size, parts=1,
                part_cases=size)  # fmt: skip
    policy = Policy(score_rule=ScoreRule.WEIGHTED, gates=())
    with Aggregates([tmp_path / "0.parquet"], plan, policy) as found:
        yield found


def test_errors_come_first_and_what_was_never_executed_last(tables: Aggregates) -> None:
    cases = [failure.case for failure in tables.failures(10)]
    assert cases == ["c5", "c4", "c1", "c0", "c3", "c6", "c7"]


def test_skipped_items_are_counted_by_their_reason(tables: Aggregates) -> None:
    assert tables.reasons() == [
        ("budget", 2),
        ("filter", 1),
        ("no reason given", 1),
        ("not for this target", 1),
    ]


@pytest.mark.parametrize(
    ("asked", "outputs"),
    [(False, {"c4": "wrong"}), (True, {"c2": "fine", "c4": "wrong"})],
    ids=["report.json", "other forms"],
)
def test_outputs_of_passed_items_are_there_for_those_who_ask(
    tables: Aggregates, asked: bool, outputs: dict[str, str]
) -> None:
    cases = [
        orjson.loads(text) for batch in tables.report_cases(passed_outputs=asked) for text in batch
    ]
    found = {case["id"]: case["items"][0]["output"] for case in cases}
    assert {name: output for name, output in found.items() if output is not None} == outputs

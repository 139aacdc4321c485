"""Limits of a run that several lanes share, judged by the model server's own counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.lane import execute_lane
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.model_server import model_server

SETTINGS = Settings(prices={"tiny": {"input": 100.0, "output": 400.0}})


def plan(folder: Path, url: str, *, items: int, limits: dict[str, Any], lanes: int) -> StoredRun:
    target = {"name": "m", "provider": "openai", "model": "tiny", "base_url": url, "api_key": "k"}
    suite = {
        "targets": [target],
        "execution": {"target": "m"},
        "evalcore": {"limits": limits},
        "assertions": [{"type": "contains", "value": "word"}],
        "tests": [{"id": f"t{item}", "input": f"word {item}"} for item in range(items)],
    }
    path = folder / "limits.eval.yaml"
    path.write_bytes(orjson.dumps(suite))
    options = PlanOptions(workers=lanes)
    return plan_run(load(path), LocalStore(folder / "store"), options, now=datetime.now(UTC))


def run_lanes(run: StoredRun, lanes: int) -> dict[str, Any]:
    def lane(number: int) -> None:
        execute_lane(run, ExecuteOptions(settings=SETTINGS), lane=f"lane-{number}", lease_s=1.0)

    with ThreadPoolExecutor(lanes) as threads:
        list(threads.map(lane, range(lanes)))
    with finish_run(run, (), now=datetime.now(UTC)) as view:
        report: dict[str, Any] = orjson.loads(view.json())
        return report


@pytest.mark.parametrize(
    "limits", [{"max_tokens": 8_000}, {"max_cost_usd": 2.0}], ids=["tokens", "cost"]
)
def test_lanes_together_never_exceed_a_budget_and_spend_nearly_all(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    with model_server(latency_s=0.005, output_tokens=15) as server:
        given = {**limits, "concurrency": 5}
        run = plan(tmp_path, server.base_url, items=900, limits=given, lanes=3)
        report = run_lanes(run, 3)
        stats = server.stats()
    tokens = stats.input_tokens + stats.output_tokens
    cost_usd = (stats.input_tokens * 100 + stats.output_tokens * 400) / 1e6
    used, bound = (tokens, 8_000) if "max_tokens" in limits else (cost_usd, 2.0)
    assert 0.75 * bound <= used <= bound
    counts = report["counts"]
    assert counts["passed"] == stats.answered
    assert counts["skipped"] == 900 - stats.answered


def test_a_budget_that_suffices_prevents_nothing_in_any_lane(tmp_path: Path) -> None:
    with model_server(latency_s=0.005, output_tokens=15) as server:
        limits = {"max_tokens": 100_000, "concurrency": 5}
        run = plan(tmp_path, server.base_url, items=300, limits=limits, lanes=3)
        report = run_lanes(run, 3)
    assert report["counts"]["passed"] == 300

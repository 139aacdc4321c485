"""A replay of a run that a limit cut short ends as that run did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import SLOW, Failure, model_server
from tests.support.model_wire import Answer, Question
from tests.support.shell import Json, evalcore


def write_suite(folder: Path, url: str, limits: Json, *, items: int) -> Path:
    target = {"provider": "openai", "model": "tiny", "base_url": url, "api_key": "k"}
    suite = {
        "targets": [{"name": "m", **target}],
        "execution": {"target": "m"},
        "evalcore": {"limits": limits},
        "assertions": [{"type": "contains", "value": "word"}],
        "tests": [{"id": f"t{item}", "input": f"word {item}"} for item in range(items)],
    }
    path = folder / "limited.eval.yaml"
    path.write_text(json.dumps(suite), "utf-8")
    return path


def outcomes(report: Json) -> dict[str, Any]:
    return {
        case["id"]: [
            (item["status"], item["outcome"], (item["error"] or {}).get("kind"))
            for item in case["items"]
        ]
        for case in report["cases"]
    }


@pytest.mark.parametrize(
    ("limits", "cut"),
    [
        ({"max_tokens": 500, "concurrency": 4}, "skipped"),
        ({"timeout_s": 2, "concurrency": 4}, "error"),
        ({"max_duration_s": 3, "concurrency": 2}, "skipped"),
    ],
    ids=["budget", "time-limit", "duration"],
)
def test_a_replay_has_the_statuses_and_errors_of_the_recorded_run(
    tmp_path: Path, limits: Json, cut: str
) -> None:
    def script(question: Question) -> Answer | Failure:
        if "timeout_s" in limits and question.prompt.endswith("7"):
            return SLOW
        return Answer(question.prompt, output_tokens=15)

    # All items take four seconds at least.
    latency_s = 0.2 if "max_duration_s" in limits else 0.01
    with model_server(script=script, latency_s=latency_s) as server:
        suite = write_suite(tmp_path, server.base_url, limits, items=40)
        store = tmp_path / "store"
        recorded = evalcore("record", "--json", suite, store=store, cwd=tmp_path).report
        calls = server.stats().requests
        replayed = evalcore("run", "--json", "--mode", "replay", suite, store=store, cwd=tmp_path)
        assert server.stats().requests == calls
    assert 0 < recorded["counts"][cut] < 40
    assert outcomes(replayed.report) == outcomes(recorded)
    assert replayed.report["counts"] == recorded["counts"]
    assert replayed.report["decision"] == recorded["decision"]


def test_what_a_later_run_records_is_replayed(tmp_path: Path) -> None:
    with model_server(output_tokens=15) as server:
        limits = {"max_tokens": 500, "concurrency": 4}
        suite = write_suite(tmp_path, server.base_url, limits, items=40)
        store = tmp_path / "store"
        cut = evalcore("record", "--json", suite, store=store, cwd=tmp_path).report
        write_suite(tmp_path, server.base_url, {"max_tokens": 90_000}, items=40)
        whole = evalcore("run", "--json", "--mode", "auto", suite, store=store, cwd=tmp_path).report
        replayed = evalcore("run", "--json", "--mode", "replay", suite, store=store, cwd=tmp_path)
    assert cut["counts"]["skipped"] > 0
    assert whole["counts"]["passed"] == 40
    assert replayed.report["counts"]["passed"] == 40

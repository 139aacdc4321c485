"""Calls under limits against a real model server on loopback, judged by the server's own counts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evalcore.formats.registry import load_suite
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import evaluate, finish_run
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import reopen_refused
from evalcore.settings import Settings
from evalcore.storage.local import LocalStore
from tests.support.model_server import CUT, RATE_LIMITED, RESET, Failure, model_server
from tests.support.model_wire import Answer, Question
from tests.support.shell import ROOT, evalcore

PRICES = {"tiny": {"input": 100.0, "output": 400.0}}
SETTINGS = Settings(prices=PRICES)


def suite_file(
    folder: Path,
    url: str,
    *,
    items: int,
    limits: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Path:
    target = {"name": "m", "provider": "openai", "model": "tiny", "base_url": url, "api_key": "k"}
    suite = {
        "name": "limits",
        "targets": [{**target, **(options or {})}],
        "execution": {"target": "m"},
        "evalcore": {"limits": limits or {}, "gates": [{"gate": "pass_rate", "threshold": 0.5}]},
        "assertions": [{"type": "contains", "value": "word"}],
        "tests": [{"id": f"t{item}", "input": f"word {item}"} for item in range(items)],
    }
    path = folder / "limits.eval.yaml"
    path.write_text(json.dumps(suite))
    return path


def report_of(
    folder: Path, path: Path, *, mode: str = "live", settings: Settings = SETTINGS
) -> dict[str, Any]:
    options = ExecuteOptions(settings=settings)
    plan = PlanOptions(mode=mode)
    with evaluate(load_suite(path), LocalStore(folder / "store"), options, plan) as view:
        counts = view.report.summary.counts
        assert counts.add_up
        report: dict[str, Any] = json.loads(view.json())
        return report


def items_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for case in report["cases"] for item in case["items"]]


def test_the_last_item_of_a_pilot_may_be_told_to_come_back_later(tmp_path: Path) -> None:
    refused = [*[None] * 30, Failure(429, retry_after="0.5")]
    with model_server(latency_s=0.05, failures=refused) as server:
        path = suite_file(tmp_path, server.base_url, items=120, limits={"concurrency": 8})
        report = report_of(tmp_path, path)
        assert (report["counts"]["passed"], server.stats().requests) == (120, 121)


def test_a_token_budget_is_never_exceeded_and_nearly_all_spent(tmp_path: Path) -> None:
    limits = {"max_tokens": 4_000, "concurrency": 400}
    with model_server(latency_s=0.005, output_tokens=15) as server:
        path = suite_file(
            tmp_path, server.base_url, items=600, limits=limits, options={"max_tokens": 20}
        )
        report = report_of(tmp_path, path)
        stats = server.stats()
    assert 3_600 <= stats.input_tokens + stats.output_tokens <= 4_000
    counts = report["counts"]
    assert counts["completed"] == counts["passed"] == stats.answered
    assert counts["skipped"] == 600 - stats.answered
    assert counts["error"] == 0


def test_a_cost_budget_is_never_exceeded_and_nearly_all_spent(tmp_path: Path) -> None:
    limits = {"max_cost_usd": 1.0, "concurrency": 400}
    with model_server(latency_s=0.005, output_tokens=15) as server:
        path = suite_file(tmp_path, server.base_url, items=400, limits=limits)
        report = report_of(tmp_path, path)
        stats = server.stats()
    spent = (stats.input_tokens * 100 + stats.output_tokens * 400) / 1e6
    assert 0.9 <= spent <= 1.0
    assert report["summary"]["total_cost_usd"] == pytest.approx(spent)
    assert report["counts"]["skipped"] == 400 - stats.answered


def test_a_budget_holds_where_calls_fail(tmp_path: Path) -> None:
    limits = {"max_tokens": 3_000, "concurrency": 50}
    with model_server(output_tokens=15, failure_share=0.3) as server:
        path = suite_file(tmp_path, server.base_url, items=400, limits=limits)
        report_of(tmp_path, path)
        stats = server.stats()
    assert 2_700 <= stats.input_tokens + stats.output_tokens <= 3_000


def test_what_was_cut_off_was_paid(tmp_path: Path) -> None:
    limits = {"max_tokens": 1_000, "concurrency": 1}
    with model_server(output_tokens=15, failures=[CUT] * 3) as server:
        path = suite_file(
            tmp_path, server.base_url, items=50, limits=limits, options={"max_tokens": 20}
        )
        report_of(tmp_path, path)
        stats = server.stats()
    # Each of the three may have cost its whole reservation, about 60 tokens.
    assert stats.input_tokens + stats.output_tokens <= 1_000 - 3 * 20


def test_a_provider_that_cannot_be_reached_uses_no_budget(tmp_path: Path) -> None:
    limits = {"max_tokens": 100, "concurrency": 4}
    path = suite_file(tmp_path, "http://127.0.0.1:9/v1", items=2, limits=limits)
    report = report_of(tmp_path, path)
    assert report["counts"]["error"] == 2
    assert {item["error"]["kind"] for item in items_of(report)} == {"connection"}


def test_an_answer_that_the_budget_cut_is_skipped_and_not_graded(tmp_path: Path) -> None:
    with model_server(script=lambda question: Answer("half", finish_reason="length")) as server:
        path = suite_file(tmp_path, server.base_url, items=1, limits={"max_tokens": 500})
        report = report_of(tmp_path, path)
    (item,) = items_of(report)
    assert (item["status"], report["counts"]["skipped"]) == ("skipped", 1)


def test_a_model_without_a_price_is_not_called_under_a_cost_cap(tmp_path: Path) -> None:
    with model_server() as server:
        path = suite_file(tmp_path, server.base_url, items=1, limits={"max_cost_usd": 1.0})
        report = report_of(tmp_path, path, settings=Settings())
        assert server.stats().requests == 0
    (case,) = report["cases"]
    error = case["items"][0]["error"]
    assert error["kind"] == "price"
    assert re.search(r"model 'tiny' has no known price.*evalcore\.toml", error["message"])


def test_after_the_time_of_the_run_no_item_begins(tmp_path: Path) -> None:
    # All items take three seconds at least.
    limits = {"max_duration_s": 2, "concurrency": 2}
    with model_server(latency_s=0.1) as server:
        path = suite_file(tmp_path, server.base_url, items=60, limits=limits)
        report = report_of(tmp_path, path)
        stats = server.stats()
    counts = report["counts"]
    assert counts["completed"] == stats.answered
    assert 0 < counts["completed"] < 60
    assert counts["skipped"] == 60 - counts["completed"]


def mixed_failures(number: int) -> list[Failure | None]:
    """Return failures of three in ten requests, 429 and 500 in turn."""
    pattern: list[Failure | None] = [None, RATE_LIMITED, None, None, Failure(500), None, None]
    pattern += [RATE_LIMITED, None, None]
    return (pattern * (number // len(pattern) + 1))[:number]


def test_three_failures_in_ten_lose_no_item(tmp_path: Path) -> None:
    with model_server(latency_s=0.01, failures=mixed_failures(1_200)) as server:
        path = suite_file(tmp_path, server.base_url, items=400, limits={"concurrency": 100})
        report = report_of(tmp_path, path)
        stats = server.stats()
    assert report["counts"]["passed"] == stats.answered == 400
    assert stats.failed > 120


COME_BACK = Failure(429, retry_after="1", message="too many requests")
JUDGED = {"type": "llm-grader", "prompt": "Is it a word?", "target": "judge"}


def test_what_a_provider_asks_to_wait_holds_all_calls_and_no_attempt_is_lost(
    tmp_path: Path,
) -> None:
    """Five calls are answered, the others are told to come back in a second; four times."""
    answered = 0

    def window(question: Question) -> str | Failure:
        nonlocal answered
        now = time.monotonic()
        if now >= opens[0]:
            opens[0], opens[1] = now + 1, 5
        if not opens[1]:
            return COME_BACK._replace(status=503)
        opens[1] -= 1
        answered += 1
        return question.prompt

    opens = [0.0, 0]
    limits = {"concurrency": 16, "timeout_s": 3}
    with model_server(script=window) as server:
        report = report_of(tmp_path, suite_file(tmp_path, server.base_url, items=20, limits=limits))
        requests = server.stats().requests
    assert (report["counts"]["passed"], answered) == (20, 20)
    # Those of the first moment are refused together, later ones singly.
    assert requests <= 20 + 16 + 3 * 3


def test_a_judge_and_its_target_share_what_their_provider_asks_to_wait(tmp_path: Path) -> None:
    refused_at: list[float] = []

    def once(question: Question) -> str | Failure:
        if not refused_at and "Is it a word?" in question.text:
            refused_at.append(time.monotonic())
            return COME_BACK
        is_judged = "Is it a word?" in question.text
        return '{"score": 1, "assertions": [], "reasoning": "yes"}' if is_judged else "word"

    with model_server(latency_s=0.02, script=once) as server:
        path = suite_file(tmp_path, server.base_url, items=40, limits={"concurrency": 4})
        suite = json.loads(path.read_text())
        suite["targets"].append({**suite["targets"][0], "name": "judge", "model": "other"})
        suite["assertions"] = [JUDGED]
        path.write_text(json.dumps(suite))
        assert report_of(tmp_path, path)["counts"]["passed"] == 40
        seen = [request.at for request in server.requests]
    # What was under way is answered; nothing begins before the second is over.
    assert not [at for at in seen if refused_at[0] + 0.2 < at < refused_at[0] + 0.95]


def test_a_wait_that_is_too_long_is_said(tmp_path: Path) -> None:
    with model_server(failures=[COME_BACK._replace(retry_after="3600")]) as server:
        report = report_of(tmp_path, suite_file(tmp_path, server.base_url, items=1))
        assert server.stats().requests == 1
    (item,) = items_of(report)
    asked = "the provider asks to wait for 3600 s, evalcore waits for 300 s at most"
    assert item["error"]["kind"] == "rate"
    assert asked in item["error"]["message"]


@pytest.mark.parametrize(
    "refusal",
    [
        Failure(429, message="no credit left", code="insufficient_quota"),
        Failure(401, message="no credit left"),
    ],
    ids=["no credit", "401"],
)
def test_a_provider_that_refuses_every_call_ends_the_run(tmp_path: Path, refusal: Failure) -> None:
    warnings: list[str] = []
    with model_server(latency_s=0.02, script=lambda _: refusal) as server:
        path = suite_file(tmp_path, server.base_url, items=100, limits={"concurrency": 4})
        store = LocalStore(tmp_path / "store")
        options = ExecuteOptions(settings=SETTINGS, warn=warnings.append)
        with evaluate(load_suite(path), store, options, PlanOptions()) as view:
            counts, decision = view.report.summary.counts, view.report.decision
            run, reasons = view.run, view.tables.reasons()
        assert server.stats().requests == counts.error <= 8
    assert decision == "error"
    assert reasons == [("refused", 100 - counts.error)]
    assert "no credit left" in warnings[0]
    assert f"evalcore run --resume {run.run_id}" in warnings[0]


def test_a_run_that_its_provider_ended_goes_on_with_what_was_left_out(tmp_path: Path) -> None:
    credit = [10]

    def paid(question: Question) -> str | Failure:
        credit[0] -= 1
        return question.prompt if credit[0] >= 0 else Failure(402, message="no credit left")

    options = ExecuteOptions(settings=SETTINGS)
    with model_server(script=paid) as server:
        path = suite_file(tmp_path, server.base_url, items=60, limits={"concurrency": 4})
        with evaluate(
            load_suite(path), LocalStore(tmp_path / "store"), options, PlanOptions()
        ) as view:
            run = view.run
            assert view.report.summary.counts.passed == 10
        credit[0] = 1_000
        assert reopen_refused(run)
        execute_run(run, options)
        with finish_run(run, now=datetime.now(UTC)) as view:
            assert view.report.summary.counts.passed == 60
        assert not reopen_refused(run)


def test_what_a_fallback_makes_good_does_not_end_the_run(tmp_path: Path) -> None:
    with (
        model_server(script=lambda _: Failure(402, message="no credit left")) as first,
        model_server() as second,
    ):
        path = suite_file(tmp_path, first.base_url, items=20, options={"fallback_targets": ["n"]})
        suite = json.loads(path.read_text())
        fallback = {**suite["targets"][0], "name": "n", "base_url": second.base_url}
        del fallback["fallback_targets"]
        suite["targets"].append(fallback)
        path.write_text(json.dumps(suite))
        assert report_of(tmp_path, path)["counts"]["passed"] == 20


def test_lost_connections_are_made_again(tmp_path: Path) -> None:
    with model_server(failures=[RESET, CUT, RESET]) as server:
        path = suite_file(tmp_path, server.base_url, items=3)
        assert report_of(tmp_path, path)["counts"]["passed"] == 3
        assert server.stats().requests == 6


def test_workers_of_a_target_are_the_most_items_of_it_at_once(tmp_path: Path) -> None:
    check = {"assertions": [{"type": "contains", "value": "word"}]}
    with model_server(latency_s=0.02) as server:
        target = {"name": "m", "provider": "openai", "model": "tiny", "workers": 2, "api_key": "k"}
        suite = {
            "name": "s",
            "flow": "m",
            "targets": [target | {"base_url": server.base_url}],
            "cases": [{"id": f"t{item}", "input": f"word {item}"} | check for item in range(12)],
            "variants": [{"id": "one"}, {"id": "two"}],
        }
        path = tmp_path / "s.eval.yaml"
        path.write_text(json.dumps(suite))
        assert report_of(tmp_path, path)["counts"]["passed"] == 24
        assert server.stats().most_in_flight <= 2


def test_workers_of_a_program_are_the_most_runs_of_it_at_once(tmp_path: Path) -> None:
    program = "mkdir live.$$; ls -d live.* | wc -l >> most; sleep 0.05; rmdir live.$$; echo word"
    path = suite_file(tmp_path, "http://127.0.0.1:9", items=12)
    suite = json.loads(path.read_text())
    suite["targets"] = [{"name": "m", "provider": "command", "command": program, "workers": 2}]
    path.write_text(json.dumps(suite))
    assert evalcore("run", path, cwd=tmp_path, store=tmp_path / "store").code == 0
    counts = [int(line) for line in (tmp_path / "most").read_text().split()]
    assert (len(counts), max(counts) <= 2) == (12, True)


def test_items_that_wait_for_their_turn_do_not_hold_up_a_budget(tmp_path: Path) -> None:
    with model_server() as server:
        limits = {"max_tokens": 700, "concurrency": 8}
        options = {"workers": 1, "max_tokens": 20}
        path = suite_file(tmp_path, server.base_url, items=20, limits=limits, options=options)
        report = report_of(tmp_path, path)
    assert report["counts"]["passed"] + report["counts"]["skipped"] == 20


def test_waiting_for_a_rate_limit_is_no_part_of_an_items_time(tmp_path: Path) -> None:
    limits = {
        "concurrency": 20,
        "timeout_s": 3,
        "providers": {"m": {"requests_per_minute": 300}},
    }
    with model_server() as server:
        path = suite_file(tmp_path, server.base_url, items=20, limits=limits)
        assert report_of(tmp_path, path)["counts"]["passed"] == 20


def test_a_replay_needs_no_budget_and_no_price(tmp_path: Path) -> None:
    with model_server() as server:
        path = suite_file(tmp_path, server.base_url, items=5)
        report_of(tmp_path, path, mode="record")
        path = suite_file(tmp_path, server.base_url, items=5, limits={"max_cost_usd": 0.0})
        replayed = report_of(tmp_path, path, mode="replay", settings=Settings())
    assert replayed["counts"]["passed"] == 5


def test_the_row_says_how_many_attempts_an_item_took(tmp_path: Path) -> None:
    import duckdb

    with model_server(failures=[RATE_LIMITED, RATE_LIMITED]) as server:
        path = suite_file(tmp_path, server.base_url, items=1)
        suite = load_suite(path)
        run = plan_run(suite, LocalStore(tmp_path / "store"), now=datetime.now(UTC))
        execute_run(run, ExecuteOptions(settings=SETTINGS))
        with (
            finish_run(run, now=datetime.now(UTC)),
            run.result_files(run.manifest().plan) as parts,
        ):
            row = duckdb.sql(f"SELECT attempts, cost_usd FROM '{parts[0]}'").fetchone()
    assert row == (3, pytest.approx((2 * 100 + 2 * 400) / 1e6))


FIRST_GRADING = """
import json, sys
from pathlib import Path
from evalcore.pipeline.finish import evaluate
from evalcore.formats.registry import load_suite
from evalcore.storage.local import LocalStore
from tests.support.model_server import model_server

PARTS = ("evalcore.checks", "evalcore.judging", "evalcore.targets", "evalcore.execution", "regex")
before = set()
def answer(question):
    if not before:
        before.update(sys.modules)
    judged = "Is it a word?" in question.text
    return '{"score": 1, "reasoning": "yes"}' if judged else '{"score": 2}'

with model_server(script=answer) as server:
    suite = json.loads(open(sys.argv[1]).read())
    for target in suite["targets"]:
        target["base_url"] = server.base_url
    open(sys.argv[1], "w").write(json.dumps(suite))
    with evaluate(load_suite(Path(sys.argv[1])), LocalStore(Path(sys.argv[2]))) as view:
        assert view.report.summary.counts.passed == 3
    late = set(sys.modules) - before
print(sorted(name for name in late if name.startswith(PARTS)))
"""


def test_what_the_first_grading_imports_is_imported_before_the_first_call(tmp_path: Path) -> None:
    """As it would hold up the calls that are under way then."""
    path = suite_file(tmp_path, "http://127.0.0.1:9/v1", items=3)
    suite = json.loads(path.read_text())
    suite["targets"].append({**suite["targets"][0], "name": "judge"})
    suite["assertions"] = [
        {"type": "is-json"},
        {"type": "regex", "value": "sc.re"},
        JUDGED,
        {"type": "composite", "assertions": [{"type": "contains", "value": "score"}, JUDGED]},
    ]
    path.write_text(json.dumps(suite))
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_GRADING, str(path), str(tmp_path / "store")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.stdout.strip() == "[]", ended.stdout + ended.stderr

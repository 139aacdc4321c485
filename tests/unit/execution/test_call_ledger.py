"""What the calls of an item come to."""

from __future__ import annotations

from evalcore.execution.call_ledger import CallLedger
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import Endpoint, ProviderError, Reply, Request, Usage

REQUEST = Request(Endpoint("openai", "mine", ""), "model")


def reply(latency_ms: float, cost_usd: float | None = 0.5) -> Reply:
    return Reply("yes", usage=Usage(10, 5), cost_usd=cost_usd, latency_ms=latency_ms, attempts=2)


def test_calls_one_after_another_add_up() -> None:
    ledger = CallLedger()
    for latency_ms in (100.0, 50.0):
        ledger.add_reply(ledger.begin(), REQUEST, reply(latency_ms))
    assert ledger.metrics == Metrics(150.0, None, 1.0, 20, 10)
    assert ledger.attempts == 4


def test_of_calls_side_by_side_the_longest_counts() -> None:
    ledger = CallLedger()
    began = [ledger.begin() for _ in range(3)]
    for start, latency_ms in zip(began, (100.0, 300.0, 50.0), strict=True):
        ledger.add_reply(start, REQUEST, reply(latency_ms))
    ledger.add_reply(ledger.begin(), REQUEST, reply(40.0))
    assert ledger.metrics.latency_ms == 340.0


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    ledger = CallLedger()
    ledger.add_reply(0.0, REQUEST, reply(1.0))
    ledger.add_reply(0.0, REQUEST, reply(1.0, cost_usd=None))
    assert ledger.metrics.cost_usd is None


def test_failed_calls_are_listed_and_cost_nothing() -> None:
    ledger = CallLedger()
    ledger.add_failure(REQUEST, ProviderError("rate", "too many", 429, attempts=3))
    assert ledger.metrics == UNMEASURED
    assert ledger.attempts == 3
    assert ledger.calls[0]["error"] == "rate: too many"


def test_evidence_keeps_its_own_measures_and_gets_the_others() -> None:
    ledger = CallLedger()
    ledger.add_reply(0.0, REQUEST, reply(100.0))
    own = Evidence("text", metrics=Metrics(latency_ms=7.0))
    completed = ledger.completed(own)
    assert completed.metrics == Metrics(7.0, None, 0.5, 10, 5)
    assert completed.details["calls"] == ledger.calls


def test_evidence_of_an_item_without_calls_is_left_alone() -> None:
    own = Evidence("text")
    assert CallLedger().completed(own) is own

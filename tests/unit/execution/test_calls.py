"""What the calls of an item come to."""

from __future__ import annotations

from evalcore.execution.calls import CallLedger
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import Endpoint, ProviderError, Reply, Request, Usage
from evalcore.recording.redaction import Redaction
from evalcore.redaction.redactor import Redactor

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
    ledger.add_reply(ledger.begin(), REQUEST, reply(1.0))
    ledger.add_reply(ledger.begin(), REQUEST, reply(1.0, cost_usd=None))
    assert ledger.metrics.cost_usd is None


def test_failed_calls_are_listed_and_cost_nothing() -> None:
    ledger = CallLedger()
    ledger.add_failure(ledger.begin(), REQUEST, ProviderError("rate", "too many", 429, attempts=3))
    assert ledger.metrics == UNMEASURED
    assert ledger.attempts == 3
    assert ledger.calls[0]["error"] == "rate: too many"


def test_evidence_keeps_its_own_measures_and_gets_the_others() -> None:
    ledger = CallLedger()
    ledger.add_reply(ledger.begin(), REQUEST, reply(100.0))
    own = Evidence("text", metrics=Metrics(latency_ms=7.0))
    completed = ledger.completed(own)
    assert completed.metrics == Metrics(7.0, None, 0.5, 10, 5)
    assert completed.details["calls"] == ledger.calls


def test_messages_are_kept_without_secrets_and_each_once() -> None:
    ledger = CallLedger()
    ledger.redaction = Redaction(Redactor(["s3cret-value"]))
    endpoint = Endpoint("openai", "mine", "", api_key="key-of-the-endpoint")
    first = {"role": "user", "content": "my s3cret-value"}
    second = {"role": "assistant", "content": "yes"}
    for messages in ((first,), (first, second)):
        ledger.add_reply(ledger.begin(), Request(endpoint, "model", messages), reply(1.0))
    ledger.redaction = Redaction(Redactor())
    requests = [call["request"] for call in ledger.calls]
    assert [request["continues"] for request in requests] == [0, 1]
    assert requests[0]["messages"] == [{"role": "user", "content": "my [redacted]"}]
    assert requests[1]["messages"] == [second]
    assert ledger.calls[0]["reply"]["text"] == "yes"


def test_calls_that_a_target_lists_get_what_the_ledger_noted_of_them() -> None:
    ledger = CallLedger()
    judged, asked = ledger.begin(), ledger.begin()
    judged.recording, asked.recording = "a" * 64, "b" * 64
    ledger.add_reply(judged, REQUEST, reply(10.0))
    ledger.add_reply(asked, REQUEST, reply(20.0))
    listed = [{"provider": "mine", "block": "draft", "latency_ms": 20.0}]
    completed = ledger.completed(Evidence("text", details={"calls": listed}))
    assert completed.details["calls"] == [{**listed[0], "recording": "b" * 64}]

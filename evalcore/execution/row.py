"""A finished work item: its outcome, and its row as one JSON line (docs/reference/store.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from math import fsum
from typing import Any, NamedTuple

import orjson

from evalcore.checks.human import as_if_answered, is_awaiting, with_best_score
from evalcore.errors import TargetError
from evalcore.jsonvalues import storable
from evalcore.model.annotation import AWAITING
from evalcore.model.assertion import Assertion, AssertionResult, Outcome
from evalcore.model.evidence import (
    UNMEASURED,
    Evidence,
    Metrics,
    measure_mistake,
    measure_problem,
    with_warnings,
)
from evalcore.model.exchange import cut_of
from evalcore.model.run import State
from evalcore.model.scoring import after_failed_turn, after_last_turn, score_item, score_reason
from evalcore.model.suite import ScoreRule
from evalcore.observability.events import ItemEnded
from evalcore.planning.codec import encode_evidence
from evalcore.planning.expand import WorkItem
from evalcore.redaction.redactor import PROCESS
from evalcore.wording import shorten

# Larger outputs and evidence are blobs of their own.
INLINE_BYTES = 64 * 1024
# Of a text that is a blob the row keeps its beginning, for reports.
_KEPT_CHARACTERS = 2_000

_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


class FinishedItem(NamedTuple):
    """What became of a work item. Times in microseconds since the epoch.

    `scores` are the suite's scorers' entries.
    """

    item: WorkItem
    status: State
    started_us: int
    ended_us: int
    evidence: Evidence | None = None
    results: Sequence[AssertionResult] = ()
    score: float | None = None
    outcome: Outcome | None = None
    error: Mapping[str, str] | None = None
    reason: str | None = None
    attempts: int = 1
    scores: Sequence[Mapping[str, Any]] = ()

    @property
    def number(self) -> int:
        """Its place in the plan."""
        return self.item.number


class FinishedElsewhere(NamedTuple):
    """What a child process reports of an item that it has finished."""

    number: int
    status: State
    outcome: Outcome | None
    started_us: int
    ended_us: int


ItemEnd = FinishedItem | FinishedElsewhere
"""What progress is told of."""


def row_metrics(row: Mapping[str, Any]) -> Metrics:
    """Return what a stored row says was measured."""
    return Metrics(**{field.name: row.get(field.name) for field in fields(Metrics)})


def without_evidence(finished: FinishedItem, reason: str) -> FinishedItem:
    """Return the item as one in error for this reason."""
    return FinishedItem(
        finished.item,
        State.ERROR,
        finished.started_us,
        finished.ended_us,
        error={"kind": "evidence", "message": reason},
    )


def storable_item(finished: FinishedItem) -> FinishedItem:
    """Return the item with U+FFFD in its texts for what UTF-8 cannot hold, and a warning of it."""
    parts = (finished.results, finished.error, finished.reason, finished.scores)
    (results, error, reason, scores), notes = storable(parts)
    evidence = finished.evidence
    if evidence is not None:
        texts = storable((evidence.output, evidence.outputs, evidence.details))
        output, outputs, details = texts.value
        evidence = evidence._replace(output=output, outputs=outputs, details=details)
        evidence = with_warnings(evidence, (*texts.notes, *notes))
    # A score that is no number is no text: it stays what it is, an error.
    graded = [
        AssertionResult(*clean)._replace(score=result.score)
        for clean, result in zip(results, finished.results, strict=True)
    ]
    return finished._replace(
        evidence=evidence, results=graded, error=error, reason=reason, scores=scores
    )


def encode_row(finished: FinishedItem, blobs: dict[str, bytes]) -> bytes:
    """Return the row as one line; add texts beyond `INLINE_BYTES` to `blobs`, by SHA-256."""
    assertions, evidence = finished.item.case.assertions, finished.evidence
    results = finished.results
    row = _item_fields(finished)
    if evidence is not None:
        _add_evidence(row, evidence, blobs)
        if row.get("evidence_ref") is not None:
            # Reports read the texts of blocks from the row, and the row has not got them.
            results = [_with_text(result, evidence) for result in results]
    row["assertions"] = list(map(result_fields, results))
    if scores := [*_metric_scores(assertions, results), *finished.scores]:
        row["scores"] = scores
    if unpriced := _unpriced(evidence, results):
        row["unpriced_models"] = unpriced
    return orjson.dumps(row, option=_OPTIONS)


def calls_of(evidence: Evidence | None) -> list[Mapping[str, Any]]:
    """Return the calls that evidence lists; a target in Python may list other things."""
    if evidence is None or not evidence.details:
        return []
    calls = evidence.details.get("calls")
    listed = calls if isinstance(calls, list | tuple) else ()
    return [call for call in listed if isinstance(call, Mapping)]


def finish_reason_of(evidence: Evidence) -> str | None:
    """Return why the item's answers ended: the first that was cut, else the last one."""
    reasons = [call["finish_reason"] for call in calls_of(evidence) if "finish_reason" in call]
    cut = next((reason for reason in reasons if cut_of(reason) is not None), None)
    reason = cut or (reasons[-1] if reasons else None)
    return None if reason is None else str(reason)


def truncation(evidence: Evidence | None, *, every_cut: bool) -> str | None:
    """Return why an answer that was cut makes an error of its item; None if it does not.

    `every_cut` says that the suite wants one for each answer that was cut.
    """
    for call in calls_of(evidence):
        why = call.get("truncated")
        if why is None and every_cut and cut_of(call.get("finish_reason")) is not None:
            why = f"the answer was cut ({call['finish_reason']}), which the suite makes an error"
        if why is not None and not call.get("error"):
            return f"block '{call['block']}': {why}" if call.get("block") else str(why)
    return None


def _unpriced(evidence: Evidence | None, results: Sequence[AssertionResult]) -> list[str]:
    """Return the models without a price that the target and the judges asked."""
    names: set[str] = set()
    for result in results:
        details = result.details
        if details and isinstance(listed := details.get("unpriced"), list):
            names.update(map(str, listed))
    for call in calls_of(evidence):
        if "unpriced" in call:
            names.add(str(call["unpriced"]))
    return sorted(names)


def _item_fields(finished: FinishedItem) -> dict[str, Any]:
    """Return the fields of the item itself; a key that is left out is NULL and need not be read."""
    # Unpacked at once: a field at a time takes three times as long.
    number, case, variant, target, iteration, exec_key, grade_key = finished.item
    row: dict[str, Any] = {
        "item": number,
        "case_id": case.id,
        "variant": variant.id,
        "iteration": iteration,
        "exec_key": exec_key,
        "grade_key": grade_key,
        "status": finished.status,
        "attempts": finished.attempts,
        "started_at": finished.started_us,
        "ended_at": finished.ended_us,
        "tags": case.tags,
    }
    for name, value in (
        ("case_group", case.group),
        ("target", None if target is None else target.name),
        ("outcome", finished.outcome),
        ("score", finished.score),
        ("reason", finished.reason),
        ("error", finished.error),
        ("threshold", case.threshold),
        ("metadata", case.metadata or None),
    ):
        if value is not None:
            row[name] = value
    return row


def _with_text(result: AssertionResult, evidence: Evidence) -> AssertionResult:
    """Return the result with the beginning of its block's text, if it says nothing of it."""
    if result.block is None or result.actual is not None:
        return result
    text = evidence.outputs.get(result.block)
    return result if text is None else result._replace(actual=shorten(text))


def result_fields(result: AssertionResult) -> dict[str, Any]:
    """Return the fields that say something: what is not written need not be read, and is NULL."""
    # Unpacked at once: a field at a time takes three times as long.
    name, type_, block, outcome, score, weight, required, actual, expected, message, *_ = result
    fields: dict[str, Any] = {
        "name": name,
        "type": type_,
        "outcome": outcome,
        "score": score,
        "weight": weight,
    }
    if expected is not None:
        fields["expected"] = expected
    if block is not None:
        fields["block"] = block
    if required is not None:
        fields["required"] = required
    if actual is not None:
        fields["actual"] = actual
    if message:
        fields["message"] = message
    latency_ms, cost_usd, details = result[-3:]
    if not 0 <= score <= 1 or latency_ms is not None or cost_usd is not None:
        fields |= _measured(name, score, latency_ms, cost_usd)
    if details:
        fields["details"] = details
    return fields


def _measured(name: str, score: float, latency_ms: Any, cost_usd: Any) -> dict[str, float]:
    """Return what was measured of an assertion; raise `ValueError` for what cannot be stored."""
    if not 0 <= score <= 1:
        raise ValueError(f"assertion '{name}': the score is {score}, not a number from 0 to 1")
    fields = {"latency_ms": latency_ms, "cost_usd": cost_usd}
    measured = {key: value for key, value in fields.items() if value is not None}
    for key, value in measured.items():
        if (mistake := measure_mistake(key, value)) is not None:
            raise ValueError(f"assertion '{name}': {mistake}")
    return measured


def _metric_scores(
    assertions: Sequence[Assertion], results: Sequence[AssertionResult]
) -> list[dict[str, Any]]:
    """Return a score for each metric that assertions name: the mean where several name it."""
    named: dict[str, list[float]] = {}
    for number, assertion in enumerate(assertions):
        if assertion.metric and number < len(results):
            named.setdefault(assertion.metric, []).append(results[number].score)
    if not named:
        return []
    means = {name: fsum(scores) / len(scores) for name, scores in named.items()}
    return [{"name": name, "value": mean, "raw": mean} for name, mean in means.items()]


def _add_evidence(row: dict[str, Any], evidence: Evidence, blobs: dict[str, bytes]) -> None:
    metrics = evidence.metrics
    if metrics is not UNMEASURED:
        if (problem := measure_problem(metrics)) is not None:
            raise ValueError(problem)
        row["latency_ms"], row["ttft_ms"] = metrics.latency_ms, metrics.ttft_ms
        row["cost_usd"] = metrics.cost_usd
        row["input_tokens"], row["output_tokens"] = metrics.input_tokens, metrics.output_tokens
        row |= metrics.token_parts
    if (reason := finish_reason_of(evidence)) is not None:
        row["finish_reason"] = reason
    _add_text(row, "output", evidence.output, blobs)
    if evidence.outputs or evidence.details or evidence.block_metrics:
        text = orjson.dumps(encode_evidence(evidence), option=orjson.OPT_NON_STR_KEYS).decode()
        _add_text(row, "evidence", text, blobs)


def _add_text(row: dict[str, Any], name: str, text: str | None, blobs: dict[str, bytes]) -> None:
    # A character has at most four bytes, so most texts need not be encoded to be measured.
    if text is None or len(text) <= INLINE_BYTES // 4:
        row[name] = text
        return
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= INLINE_BYTES:
        row[name] = text
        return
    import hashlib

    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    row[f"{name}_ref"] = digest
    if name == "output":
        row[name] = text[:_KEPT_CHARACTERS]


def with_results(
    finished: FinishedItem, results: tuple[AssertionResult, ...], rule: ScoreRule
) -> FinishedItem:
    """Return a completed item with these results, and the score and outcome they come to.

    Of an item that fails although every assertion passed, the reason says why. Where labels are
    awaited, the reason says so, and the results what the item would come to if
    people answered as expected: the gates cannot be decided between the two.
    """
    threshold, turns = finished.item.case.threshold, finished.item.case.turns
    least = 1.0 if threshold is None else threshold
    aggregation = None if turns is None else turns.aggregation
    if turns is not None:
        evidence = finished.evidence or Evidence(None)
        if 0 < (spans := len(evidence.details.get("turns") or ())) < turns.total:
            results = after_last_turn(results, spans)
        if turns.stops:
            results = after_failed_turn(results, least, evidence.outputs)
    score, outcome = score_item(results, rule, least, aggregation)
    reason = score_reason(results, score, least) if outcome is Outcome.FAILED else None
    for result in results:
        if result.outcome is Outcome.BLOCKED and is_awaiting(result):
            reason = AWAITING
            best = score_item(list(map(as_if_answered, results)), rule, least, aggregation)
            results = tuple(with_best_score(each, *best) for each in results)
            break
    return finished._replace(results=results, score=score, outcome=outcome, reason=reason)


def storable_evidence(evidence: Evidence) -> Evidence:
    """Return evidence that can be stored: texts and details with a warning for what was replaced.

    Raises `TargetError` for a measure that is no number.
    """
    parts = (evidence.output, evidence.outputs, evidence.details)
    clean, notes = storable(parts)
    if clean is not parts:
        output, outputs, details = clean
        evidence = evidence._replace(output=output, outputs=outputs, details=details)
        evidence = with_warnings(evidence, notes)
    if evidence.metrics is UNMEASURED and not evidence.block_metrics:
        return evidence
    problem = measure_problem(evidence.metrics)
    for block, metrics in evidence.block_metrics.items():
        if problem is None and (block_problem := measure_problem(metrics)) is not None:
            problem = f"block '{block}': {block_problem}"
    if problem is not None:
        raise TargetError("metrics", problem)
    return evidence


def redacted_evidence(evidence: Evidence, redact: Callable[[str], str] | None = None) -> Evidence:
    """Return the evidence with its texts redacted, by default by the secrets of this process.

    It is redacted before it is graded, so that a replay and a regrade see what the run saw.
    """
    if redact is None:
        if not PROCESS.knows:
            return evidence
        redact = PROCESS.text
    output, outputs, details = evidence.output, evidence.outputs, evidence.details
    return evidence._replace(
        output=None if output is None else redact(output),
        outputs=PROCESS.json_value(outputs, redact) if outputs else outputs,
        details=PROCESS.json_value(details, redact) if details else details,
    )


def wall_clock_us() -> int:
    """Return the time in microseconds since the epoch."""
    return time.time_ns() // 1000


def ended_item(shard: int, finished: FinishedItem) -> ItemEnded:
    """Return the event of a finished item of a shard."""
    item = finished.item
    return ItemEnded(
        shard=shard,
        number=item.number,
        case_id=item.case.id,
        variant=item.variant.id,
        iteration=item.iteration,
        status=finished.status,
        outcome=finished.outcome,
        score=finished.score,
        reason=finished.reason,
        error=finished.error,
        attempts=finished.attempts,
        started_us=finished.started_us,
        ended_us=finished.ended_us,
        target=None if item.target is None else item.target.name,
    )

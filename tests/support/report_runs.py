"""Decided runs made of values, as the forms of a report read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalcore.model.run import Decision, GateOutcome, GateResult
from evalcore.model.summary import (
    Comparison,
    Counts,
    Failure,
    Summary,
    Trend,
    VariantSummary,
)
from evalcore.report.document import Report, RunFacts
from evalcore.report.view import CaseFacts, ListedCase

Json = dict[str, Any]

RUN = RunFacts(
    id="20260518T100000Z-0a1b2c",
    mode="replay",
    started_at="2026-05-18T10:00:00.000000Z",
    ended_at="2026-05-18T10:00:02.500000Z",
    duration_s=2.5,
    reexecuted=0,
    engine={"evalcore": "0.1.0"},
)
PASSED_GATE = GateResult("errors", GateOutcome.PASS, "nothing is in error")
FAILED_GATE = GateResult("pass_rate", GateOutcome.FAIL, "pass rate 0.5 < 1")


def assertion(name: str = "says-yes", outcome: str = "passed", **changed: Any) -> Json:
    """Return an assertion of a report."""
    failed = outcome != "passed"
    given = {
        "name": name,
        "type": "contains",
        "block": None,
        "score": 0.0 if failed else 1.0,
        "outcome": outcome,
        "weight": 1.0,
        "required": None,
        "actual": "no, never" if failed else None,
        "expected": "yes",
        "message": "does not contain 'yes'" if failed else "",
    }
    return given | changed


def item(outcome: str | None = "passed", **changed: Any) -> Json:
    """Return an item of a report; without an outcome it is one in error."""
    given: Json = {
        "iteration": 0,
        "status": "error" if outcome is None else "completed",
        "outcome": outcome,
        "score": {"passed": 1.0, None: None}.get(outcome, 0.0),
        "error": {"kind": "timeout", "message": "no answer within 5 s"}
        if outcome is None
        else None,
        "reason": None,
        "output": None if outcome is None else "yes" if outcome == "passed" else "no, never",
        "metrics": {
            "latency_ms": None if outcome is None else 1200.0,
            "cost_usd": None,
            "input_tokens": None,
            "output_tokens": None,
        },
        "scores": [],
        "assertions": [] if outcome is None else [assertion(outcome=outcome)],
    }
    return given | changed


def case(case_id: str, *items: Json, variant: str = "default", **changed: Any) -> ListedCase:
    """Return a case of one variant; it has passed if all of its items did."""
    found = [entry | {"iteration": number} for number, entry in enumerate(items or (item(),))]
    scores = [entry["score"] or 0.0 for entry in found]
    facts = changed.pop("facts", CaseFacts(input="Say yes."))
    record = {
        "id": case_id,
        "group": None,
        "variant": variant,
        "score": sum(scores) / len(scores),
        "passed": all(entry["outcome"] == "passed" for entry in found),
        "items": found,
    }
    return ListedCase(record | changed, facts)


@dataclass(frozen=True)
class MadeRun:
    """A run as forms read it."""

    report: Report
    cases: tuple[ListedCase, ...]
    skipped: tuple[tuple[str, int], ...] = ()
    past: Trend | None = None

    def failures(self, most: int) -> tuple[Failure, ...]:
        found = [
            Failure(one.record["id"], one.record["variant"], entry)
            for one in self.cases
            for entry in one.record["items"]
            if entry["outcome"] != "passed"
        ]
        return tuple(found[:most])

    def reasons(self) -> Sequence[tuple[str, int]]:
        return self.skipped

    def listed(self) -> Iterator[ListedCase]:
        return iter(self.cases)

    def trend(self) -> Trend | None:
        return self.past

    source_file = "suites/demo.eval.yaml"

    def with_report(self, **changed: Any) -> MadeRun:
        """Return the run with these fields of its report changed."""
        return replace(self, report=replace(self.report, **changed))


def run_of(
    *cases: ListedCase,
    suite: str = "demo",
    gates: tuple[GateResult, ...] | None = None,
    comparison: Comparison | None = None,
    **changed: Any,
) -> MadeRun:
    """Return a run of these cases, decided by whether all of them passed."""
    entries = [entry for one in cases for entry in one.record["items"]]
    statuses = Counter(entry["status"] for entry in entries)
    outcomes = Counter(entry["outcome"] for entry in entries)
    variants = list(dict.fromkeys(one.record["variant"] for one in cases))
    passed = all(one.record["passed"] for one in cases)
    scores = [one.record["score"] for one in cases]
    summary = Summary(
        counts=Counts(
            planned=len(entries),
            **{name: statuses[name] for name in ("completed", "error", "cancelled", "skipped")},
            **{name: outcomes[name] for name in ("passed", "failed", "blocked")},
        ),
        cases=len(cases),
        passed_cases=sum(one.record["passed"] for one in cases),
        score=sum(scores) / len(scores) if scores else None,
        variants=tuple(_variant(name, cases) for name in variants),
        comparison=comparison,
    )
    report = Report(
        run=RUN,
        suite=suite,
        format="test-file",
        decision=Decision.PASS if passed else Decision.FAIL,
        threshold=None,
        summary=summary,
        gates=gates or ((PASSED_GATE,) if passed else (FAILED_GATE, PASSED_GATE)),
        cases_complete=True,
    )
    return MadeRun(report, cases, **changed)


def _variant(name: str, cases: Sequence[ListedCase]) -> VariantSummary:
    own = [one.record for one in cases if one.record["variant"] == name]
    scores = [record["score"] for record in own]
    passed = sum(record["passed"] for record in own)
    return VariantSummary(name, len(own), passed, sum(scores) / len(scores))

"""Calling one check, or grading one output, without the rest of a suite."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from evalcore.checks.base import CheckContext
from evalcore.checks.grading import grade
from evalcore.model.assertion import Assertion, AssertionResult, Outcome
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.trust.imports import ImportPolicy

PASSED, FAILED, BLOCKED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.BLOCKED, Outcome.ERROR


def context(
    folder: Path = Path(),
    *,
    regex_timeout_s: float = 2.0,
    plugin_timeout_s: float = 30.0,
    imports: ImportPolicy | None = None,
) -> CheckContext:
    return CheckContext(folder, imports or ImportPolicy(), regex_timeout_s, plugin_timeout_s)


def assertion(
    check: str,
    params: dict[str, Any] | None = None,
    *,
    block: str | None = None,
    negate: bool = False,
    transform: str | None = None,
) -> Assertion:
    return Assertion(
        check, check, f"{check}-1", params or {}, block=block, negate=negate, transform=transform
    )


def result(
    one: Assertion,
    output: str | None,
    *,
    metrics: Metrics = UNMEASURED,
    within: CheckContext | None = None,
) -> AssertionResult:
    evidence = Evidence(output, metrics=metrics)
    return asyncio.run(grade([one], evidence, Case("case-1"), within or context()))[0]


def outcome(check: str, output: str, **params: Any) -> Outcome:
    return result(assertion(check, params), output).outcome


def score(check: str, output: str, **params: Any) -> float:
    return result(assertion(check, params), output).score


def message(check: str, output: str, **params: Any) -> str:
    return result(assertion(check, params), output).message

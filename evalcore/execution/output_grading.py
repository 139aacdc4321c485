"""One assertion on one output, outside of any run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from evalcore.checks.grading import grade
from evalcore.checks.subject import CheckContext
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.targets.case_messages import json_text
from evalcore.trust.imports import ImportPolicy


async def grade_output(
    assertion: Assertion,
    output: Any,
    measured: Mapping[str, Any],
    imports: ImportPolicy,
    workers: Workers = NO_WORKERS,
    judges: Judges = NO_JUDGES,
) -> AssertionResult:
    """Return the result of one assertion on one output; an output that is not text is JSON.

    An `Evidence` is taken as it is, but for what was measured.
    """
    whole = output if isinstance(output, Evidence) else None
    text = output if isinstance(output, str) or output is None else None
    if text is None and whole is None and output is not None:
        text = json_text(output)
    names = {name.name for name in fields(Metrics)}
    metrics = Metrics(**{name: value for name, value in measured.items() if name in names})
    context = CheckContext(folder=Path.cwd(), imports=imports, workers=workers, judges=judges)
    case = Case(id="assertion", assertions=(assertion,))
    evidence = Evidence(text, metrics=metrics)
    if whole is not None:
        evidence = whole._replace(metrics=metrics) if measured else whole
    results = await grade(case.assertions, evidence, case, context)
    return results[0]

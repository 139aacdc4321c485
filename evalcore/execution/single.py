"""One assertion on one output, outside of any run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from evalcore.assertions.grading import grade
from evalcore.assertions.subject import CheckContext
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import Evidence, Metrics
from evalcore.model.suite import Case
from evalcore.targets.messages import json_text
from evalcore.trust.imports import ImportPolicy


async def grade_output(
    assertion: Assertion, output: Any, measured: Mapping[str, Any], imports: ImportPolicy
) -> AssertionResult:
    """Return the result of one assertion on one output; an output that is not text is JSON."""
    text = output if isinstance(output, str) or output is None else json_text(output)
    names = {name.name for name in fields(Metrics)}
    metrics = Metrics(**{name: value for name, value in measured.items() if name in names})
    context = CheckContext(folder=Path.cwd(), imports=imports)
    case = Case(id="assertion", assertions=(assertion,))
    results = await grade(case.assertions, Evidence(text, metrics=metrics), case, context)
    return results[0]

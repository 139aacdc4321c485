"""The check on how near the output comes to a text in meaning: cosine of embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalcore.checks.subject import Subject
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeSpec
from evalcore.judging.texts import expected_text
from evalcore.judging.vectors import cosine
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches


async def similar(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Measure the cosine of both embeddings, at least 0; passes from `threshold` on.

    Of several values the nearest counts; `value` None means the case's expected output.
    """
    value = params.get("value")
    given = expected_text(subject.case.expected_output) if value is None else value
    wanted = given if isinstance(given, list) else [given]
    if not all(wanted):
        return broken("there is nothing to compare with: no 'value' and no 'expected_output'")
    specs: Sequence[Mapping[str, Any]] = params.get("judges") or ({},)
    try:
        found = await subject.context.judges.embed(JudgeSpec(**specs[0]), [*wanted, subject.output])
        *references, output = found.vectors
        score = min(1.0, max(0.0, *(cosine(one, output) for one in references)))
    except (TargetError, ValueError) as error:
        return broken(str(error))
    threshold = params["threshold"]
    reached = reaches(score, threshold)
    usage = {"input": found.metrics.input_tokens, "output": found.metrics.output_tokens}
    return Verdict(
        Outcome.PASSED if reached else Outcome.FAILED,
        score,
        f"cosine similarity {score:.4g} {'≥' if reached else '<'} {threshold:g}",
        expected="; ".join(wanted),
        details={"model": found.model, "token_usage": usage},
        latency_ms=found.metrics.latency_ms,
        cost_usd=found.metrics.cost_usd,
    )

"""The scorers of a suite on the evidence of one item: one entry of its row for each."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from evalcore.checks.scorers.registry import SCORERS, is_awaited
from evalcore.checks.scorers.score import Score
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.model.artifact import artifact_of
from evalcore.model.evidence import NOTHING, Evidence
from evalcore.model.suite import Case, ScorerSpec
from evalcore.trust.imports import ImportPolicy


async def score_evidence(
    specs: Sequence[ScorerSpec],
    evidence: Evidence,
    case: Case,
    *,
    imports: ImportPolicy,
    objects: Mapping[str, Any] = NOTHING,
    judges: Judges = NO_JUDGES,
    workers: Workers = NO_WORKERS,
) -> list[dict[str, Any]]:
    """Return `{name, value, raw, error?}` for each scorer, in their order; never raises.

    A scorer that fails has value None and the reason as `error`. Without scorers that have to be
    awaited (`registry.is_awaited`) it never suspends.
    """
    entries = []
    for spec in specs:
        if spec.kind == "llm_judge" or spec.params.get("mode") == "embedding":
            from evalcore.checks.scorers.judged import embedding, llm_judge

            ask = llm_judge if spec.kind == "llm_judge" else embedding
            score = await ask(spec, evidence, case, judges)
        elif is_awaited(spec):
            from evalcore.checks.scorers.custom import custom

            artifact = artifact_of(
                evidence,
                case_id=case.id,
                case_input=case.input,
                expected_output=case.expected_output,
            )
            score = await custom(spec, artifact, imports, objects, workers)
        else:
            score = _scored(spec, evidence, case)
        entries.append(score.row())
    return entries


def _scored(spec: ScorerSpec, evidence: Evidence, case: Case) -> Score:
    row = SCORERS[spec.kind]
    function = getattr(
        importlib.import_module(f"evalcore.checks.scorers.{row.module}"), row.function
    )
    try:
        score: Score = function(spec, evidence, case)
    except (ValueError, TypeError, RecursionError) as error:  # values of anybody
        return Score(spec.name, None, error=f"{type(error).__name__}: {error}")
    return score

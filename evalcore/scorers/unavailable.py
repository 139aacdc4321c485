"""The scorer that stands for one that this version does not have."""

from __future__ import annotations

from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case, ScorerSpec
from evalcore.scorers.score import Score


def llm_judge(spec: ScorerSpec, evidence: Evidence, case: Case) -> Score:  # noqa: ARG001 - a scorer's form
    """Give no value, and say why."""
    return Score(spec.name, None, error="this version has no judge for scorers")

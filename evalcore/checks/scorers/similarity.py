"""Scorers of how near the output comes to a reference."""

from __future__ import annotations

import json
from typing import Any

from evalcore.checks.scorers.score import Score
from evalcore.model.evidence import Evidence
from evalcore.model.evidence_path import PRIMARY_PATH, Missing, find_value
from evalcore.model.suite import Case, ScorerSpec

MODES = ("exact", "contains", "levenshtein", "embedding")


def similarity(spec: ScorerSpec, evidence: Evidence, case: Case) -> Score:
    """Score what stands at `path` against `expected`, else against the case's expected output.

    `exact` and `contains` are 0 or 1; `levenshtein` is 1 − distance / length of the longer text,
    its raw value the distance. What is not text is taken as its JSON.
    """
    mode = spec.params["mode"]
    texts = compared(spec, evidence, case)
    if isinstance(texts, Score):
        return texts
    actual, wanted = texts
    if mode == "levenshtein":
        from rapidfuzz.distance import Levenshtein

        distance = Levenshtein.distance(actual, wanted)
        longest = max(len(actual), len(wanted))
        return Score(spec.name, 1.0 - distance / longest if longest else 1.0, float(distance))
    value = float(actual == wanted if mode == "exact" else wanted in actual)
    return Score(spec.name, value, value)


def compared(spec: ScorerSpec, evidence: Evidence, case: Case) -> tuple[str, str] | Score:
    """Return the text at `path` and what it is compared with, or the score that says why not."""
    expected = spec.params.get("expected")
    expected = case.expected_output if expected is None else expected
    if expected is None:
        reason = "there is nothing to compare with: the case has no 'expected_output'"
        return Score(spec.name, None, error=reason)
    found = find_value(evidence, spec.params.get("path") or PRIMARY_PATH)
    if isinstance(found, Missing):
        return Score(spec.name, None, error=str(found))
    return _text(found.value), _text(expected)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

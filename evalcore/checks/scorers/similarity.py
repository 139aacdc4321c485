"""The scorer of how near the output comes to a reference."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from evalcore.checks.scorers.score import Score
from evalcore.checks.scorers.scorer import Scorer, ScorerResources
from evalcore.declared.parameter_types import MaybeText, text_of
from evalcore.declared.parameters import Rule
from evalcore.errors import EvalError
from evalcore.judging.asking import JudgeSpec, cosine
from evalcore.model.evidence import Evidence
from evalcore.model.evidence_path import (
    PRIMARY_PATH,
    MissingPath,
    PathSyntaxError,
    find_value,
    parse_path,
)
from evalcore.model.suite import Case


def _path(value: Any) -> Any:
    try:
        parse_path(text_of(value))
    except PathSyntaxError as error:
        raise ValueError(f"wrong: {error}") from None
    return value


@dataclass(frozen=True)
class SimilarityScorer(Scorer):
    """How near the value at `path` comes to `expected`, else to the case's `expected_output`; each
    mode is a name of its own (`levenshtein`). `exact` and `contains` are 0 or 1; `levenshtein` is
    1 − distance / length of the longer text; `embedding` is the cosine of the embeddings, and
    `judge` names the target that embeds.

    A value that is no text is compared as its JSON. The raw value of `levenshtein` is the distance.
    """

    mode: Literal["exact", "contains", "levenshtein", "embedding"] = "exact"
    expected: Any = None
    judge: MaybeText = None
    model: MaybeText = None
    path: Annotated[str | None, Rule(_path, {"type": "string", "minLength": 1})] = None

    @property
    def default_name(self) -> str:
        """The mode."""
        return self.mode

    @cached_property
    def is_awaited(self) -> bool:
        """Whether a judge gives embeddings."""
        return self.mode == "embedding"

    def score(self, evidence: Evidence, case: Case) -> Score:
        """Return the similarity of the texts."""
        texts = self._texts(evidence, case)
        if isinstance(texts, Score):
            return texts
        actual, expected = texts
        if self.mode == "levenshtein":
            from rapidfuzz.distance import Levenshtein

            distance = Levenshtein.distance(actual, expected)
            longest = max(len(actual), len(expected))
            value = 1.0 - distance / longest if longest else 1.0
            return Score(self.label, value, float(distance))
        value = float(actual == expected if self.mode == "exact" else expected in actual)
        return Score(self.label, value, value)

    async def ask(self, evidence: Evidence, case: Case, resources: ScorerResources) -> Score:
        """Return the cosine of the embeddings, at least 0; the raw value is the cosine."""
        texts = self._texts(evidence, case)
        if isinstance(texts, Score):
            return texts
        embedder = JudgeSpec(self.judge, self.model)
        try:
            embeddings = await resources.judges.embed(embedder, list(texts))
            value = cosine(*embeddings.vectors)
        except (EvalError, ValueError) as error:
            return self.fails(error)
        return Score(self.label, min(1.0, max(0.0, value)), value)

    def _texts(self, evidence: Evidence, case: Case) -> tuple[str, str] | Score:
        """Return the actual and the expected text, or the score that says why there is none."""
        expected = case.expected_output if self.expected is None else self.expected
        if expected is None:
            return self.fails("there is nothing to compare with: the case has no 'expected_output'")
        value = find_value(evidence, self.path or PRIMARY_PATH)
        if isinstance(value, MissingPath):
            return self.fails(value)
        return _text(value.value), _text(expected)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

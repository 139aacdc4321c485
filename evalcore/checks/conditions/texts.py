"""Conditions on texts: how they begin and end, patterns, and how similar they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from evalcore.checks.base import Fault
from evalcore.checks.conditions.base import ConditionServices, TextCondition
from evalcore.checks.conditions.verdict import BlockedCode, ConditionVerdict, blocked, verdict
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeSpec, cosine
from evalcore.mistakes.foreign_text import quote, quote_pattern
from evalcore.model.tolerance import reaches


class StartsWith(TextCondition):
    """The text begins with `expected`; case counts."""

    kind: Literal["starts_with"]
    expected: str

    @property
    def certain_outcome(self) -> bool | None:
        """True if the text is empty."""
        return True if self.expected == "" else None

    def check_text(self, text: str) -> ConditionVerdict:
        """Return the verdict."""
        return verdict(
            text.startswith(self.expected),
            f"{quote(text)} does not start with {quote(self.expected)}",
        )


class EndsWith(TextCondition):
    """The text ends with `expected`; case counts."""

    kind: Literal["ends_with"]
    expected: str

    @property
    def certain_outcome(self) -> bool | None:
        """True if the text is empty."""
        return True if self.expected == "" else None

    def check_text(self, text: str) -> ConditionVerdict:
        """Return the verdict."""
        return verdict(
            text.endswith(self.expected), f"{quote(text)} does not end with {quote(self.expected)}"
        )


class MatchesRegex(TextCondition):
    """The whole text matches a regular expression of Python's dialect."""

    kind: Literal["matches_regex"]
    pattern: str

    @property
    def expected_value(self) -> Any:
        """The pattern."""
        return self.pattern

    def faults(self) -> Iterator[Fault]:
        """Yield that the pattern is none."""
        from evalcore.patterns.bounded import compile_python
        from evalcore.patterns.errors import PatternError

        try:
            compile_python(self.pattern)
        except PatternError as error:
            yield Fault(("pattern",), str(error))

    def check_text(self, text: str) -> ConditionVerdict:
        """Return the verdict; blocked if the pattern is not valid or takes too long."""
        from evalcore.patterns.bounded import compile_python
        from evalcore.patterns.errors import PatternError

        try:
            matches = compile_python(self.pattern).fullmatch(text, 2.0)
        except (PatternError, TimeoutError) as error:
            return blocked(BlockedCode.INVALID_REGEX, str(error))
        return verdict(bool(matches), f"{quote(text)} does not match {quote_pattern(self.pattern)}")


class SimilarityGte(TextCondition):
    """The similarity of the text and `reference` is at least `threshold`.

    `levenshtein` is 1 − distance / length of the longer text, `embeddings` the cosine of both
    embeddings.
    """

    kind: Literal["similarity_gte"]
    reference: str
    threshold: Annotated[float, Field(ge=0, le=1)]
    method: Literal["levenshtein", "embeddings"] = "levenshtein"

    @property
    def certain_outcome(self) -> bool | None:
        """True if no text is less similar than the threshold."""
        return True if self.threshold == 0 else None

    @property
    def asks_embeddings(self) -> bool:
        """Whether that is its method."""
        return self.method == "embeddings"

    @property
    def expected_value(self) -> Any:
        """The reference."""
        return self.reference

    def check_text(self, text: str) -> ConditionVerdict:
        """Return the verdict by edit distance; two empty texts are the same."""
        from rapidfuzz.distance import Levenshtein

        return self._verdict(Levenshtein.normalized_similarity(text, self.reference))

    async def evaluate(self, value: Any, services: ConditionServices) -> ConditionVerdict:
        """Return the verdict; blocked if there is no embedding."""
        if self.method == "levenshtein" or not isinstance(value, str):
            return self.check(value)
        try:
            embedded = await services.judges.embed(JudgeSpec(), [self.reference, value])
            reference, text = embedded.vectors
            return self._verdict(cosine(reference, text))
        except (TargetError, ValueError) as error:
            return blocked(BlockedCode.JUDGE_UNAVAILABLE, str(error))

    def _verdict(self, similarity: float) -> ConditionVerdict:
        return verdict(
            reaches(similarity, self.threshold),
            f"similarity {similarity:.4g} < {self.threshold:g}",
        )

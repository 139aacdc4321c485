"""The check on how near the output comes to a text in meaning: cosine of embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, Required

from pydantic import with_config
from typing_extensions import TypedDict

from evalcore.checks.base import STRICT, Check, Reader
from evalcore.checks.judge import Judge
from evalcore.checks.scale import Scale, share
from evalcore.checks.subject import Subject
from evalcore.declared.types import Scalar, Share, Text, TextOrTexts
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeSpec, cosine
from evalcore.judging.panel import Panel
from evalcore.judging.prompts import expected_text
from evalcore.mistakes.foreign_text import value_text
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches

DEFAULT_THRESHOLD: Final = 0.8


class Similar(Check):
    """The cosine of the embeddings of output and `value`, at least 0, reaches `threshold`.

    Of several values the nearest counts; without `value` the case's expected output is taken.
    """

    nested: ClassVar[bool] = True
    measure_scale: ClassVar[Scale] = share("the similarity")

    value: str | list[str] | None = None
    threshold: float = DEFAULT_THRESHOLD
    judges: list[Judge] = field(default_factory=list)

    @property
    def panel(self) -> Panel:
        """Who is asked: the first of the judges."""
        return Panel(tuple(judge.spec for judge in self.judges) or (JudgeSpec(),))

    async def check(self, subject: Subject) -> Verdict:
        """Ask for the embeddings; the score is graded."""
        value = self.value
        reference = expected_text(subject.case.expected_output) if value is None else value
        texts = reference if isinstance(reference, list) else [reference]
        if not all(texts):
            return broken("there is nothing to compare with: no 'value' and no 'expected_output'")
        try:
            embedded = await subject.context.judges.embed(
                self.panel.judges[0], [*texts, subject.output]
            )
            *references, output = embedded.vectors
            score = min(1.0, max(0.0, *(cosine(vector, output) for vector in references)))
        except (TargetError, ValueError) as error:
            return broken(str(error))
        reached = reaches(score, self.threshold)
        metrics = embedded.metrics
        usage = {"input": metrics.input_tokens, "output": metrics.output_tokens}
        unpriced = {} if embedded.unpriced is None else {"unpriced": [embedded.unpriced]}
        return Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            score,
            f"cosine similarity {score:.4g} {'≥' if reached else '<'} {self.threshold:g}",
            expected="; ".join(texts),
            details={"model": embedded.model, "token_usage": usage, **unpriced},
            latency_ms=metrics.latency_ms,
            cost_usd=metrics.cost_usd,
        )

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `similar` means in test files."""
        return "similar", {
            "value": written.get("value"),
            "threshold": float(written.get("threshold", DEFAULT_THRESHOLD)),
            "judges": [reader.embedding(written)],
        }

    @classmethod
    def read_config(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `similar` means in workflow files and suites."""
        config = reader.validate(SimilarConfig, written.get("config") or {}, "config")
        threshold = written.get("threshold")
        if threshold is None:
            threshold = config.get("threshold", DEFAULT_THRESHOLD)
        options = {key: value for key, value in config.items() if key != "threshold"}
        judge = reader.inline_judge(options) if "provider" in options else reader.embedding(options)
        value = value_text(written["value"])
        return "similar", {"value": value, "threshold": float(threshold), "judges": [judge]}


@with_config(STRICT)
class SimilarKeys(TypedDict, total=False):
    """The keys of `similar` in test files."""

    value: TextOrTexts
    threshold: Share
    judge: Text
    target: Text
    model: Text


class SimilarValue(TypedDict, total=False):
    """The keys of `similar` in workflow files."""

    value: Required[Scalar]


@with_config(STRICT)
class SimilarConfig(TypedDict, total=False):
    """The keys in the `config` of `similar` in workflow files and suites."""

    judge: Text
    target: Text
    model: Text
    provider: Text
    base_url: Text
    api_key: Text
    threshold: Share

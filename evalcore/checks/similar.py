"""The check on how near the output comes to a text in meaning: cosine of embeddings."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from evalcore.checks.base import Check
from evalcore.checks.judge import Judge
from evalcore.checks.subject import Subject
from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeSpec
from evalcore.judging.panel import Panel
from evalcore.judging.texts import expected_text
from evalcore.judging.vectors import cosine
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches


class Similar(Check):
    """The cosine of the embeddings of output and `value`, at least 0, reaches `threshold`.

    Of several values the nearest counts; without `value` the case's expected output is taken.
    """

    nested: ClassVar[bool] = True

    value: str | list[str] | None = None
    threshold: float = 0.8
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
        return Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            score,
            f"cosine similarity {score:.4g} {'≥' if reached else '<'} {self.threshold:g}",
            expected="; ".join(texts),
            details={"model": embedded.model, "token_usage": usage},
            latency_ms=metrics.latency_ms,
            cost_usd=metrics.cost_usd,
        )

"""The judges of one check, and what their answers took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evalcore.judging.asking import Embedded, JudgeAnswer, Judges, JudgeSpec, added
from evalcore.model.assertion import Verdict
from evalcore.model.evidence import Metrics


class MeteredJudges:
    """The judges, and what their answers took; also those of a check that came to no verdict."""

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self.metrics: list[Metrics] = []
        self._unpriced: set[str] = set()

    async def ask(self, spec: JudgeSpec, question: Any) -> JudgeAnswer:
        """Return the reply; raise as `Judges.ask` does."""
        answer = await self._judges.ask(spec, question)
        self._note(answer)
        return answer

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text; raise as `Judges.embed` does."""
        embedded = await self._judges.embed(spec, texts)
        self._note(embedded)
        return embedded

    def _note(self, answer: JudgeAnswer | Embedded) -> None:
        self.metrics.append(answer.metrics)
        if answer.unpriced is not None:
            self._unpriced.add(answer.unpriced)

    def trusted(self, spec: JudgeSpec, prompt_sha256: str) -> bool:
        """Whether the judge may decide."""
        return self._judges.trusted(spec, prompt_sha256)

    def on(self, verdict: Verdict) -> Verdict:
        """Return the verdict with what the calls took."""
        if not self.metrics:
            return verdict
        total = added(self.metrics)
        usage = {"input": total.input_tokens, "output": total.output_tokens}
        details = {**(verdict.details or {}), "judge_calls": len(self.metrics)}
        if any(count is not None for count in usage.values()):
            details["token_usage"] = usage | total.usage_parts
        if self._unpriced:
            details["unpriced"] = sorted(self._unpriced)
        return verdict._replace(
            details=details, latency_ms=total.latency_ms, cost_usd=total.cost_usd
        )

"""A judge whose reply is known before it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from evalcore.judging.asking import NO_JUDGES, Embedded, JudgeAnswer, JudgeQuestion, JudgeSpec


class CannedJudges:
    """Every judge gives the same reply, a text or a JSON value; there are no embeddings."""

    def __init__(self, reply: Any) -> None:
        self._text = reply if isinstance(reply, str) else orjson.dumps(reply).decode()

    async def ask(self, spec: JudgeSpec, question: JudgeQuestion) -> JudgeAnswer:  # noqa: ARG002 - the protocol's parameters
        """Return the reply."""
        return JudgeAnswer(self._text, "judge")

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:
        """Raise `TargetError`."""
        return await NO_JUDGES.embed(spec, texts)

    def trusted(self, spec: JudgeSpec, prompt_sha256: str) -> bool:  # noqa: ARG002 - the protocol's parameters
        """Return True."""
        return True

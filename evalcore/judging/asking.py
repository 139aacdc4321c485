"""What a judge is asked, and who asks it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple, Protocol

import orjson

from evalcore.errors import TargetError
from evalcore.model.evidence import UNMEASURED, Metrics, sum_tokens

NO_JUDGE = (
    "no judge is configured: name one in the assertion (`judge: NAME`), as `grader_target` of the "
    "target or as `execution.grader_target` of the suite (elsewhere: `evalcore.judge`), call a "
    "target 'judge' or 'grader', or assert what needs no judge, such as `equals` or `contains` "
    "(for a table `columns: {equals: COLUMN}`)"
)


class JudgeSpec(NamedTuple):
    """Which judge: a target's name (None: the suite's), and what is laid over its options."""

    name: str | None = None
    model: str | None = None
    temperature: float | None = None


class JudgeQuestion(NamedTuple):
    """What a judge is asked. `material` are the texts of others in it; `schema` is the answer's."""

    system: str
    user: str
    schema: Mapping[str, Any]
    material: tuple[str, ...] = ()


class JudgeAnswer(NamedTuple):
    """What a judge replied; `judge` is its target's name.

    `unpriced` is the model that was asked, if its price is not known.
    """

    text: str
    judge: str
    model: str | None = None
    metrics: Metrics = UNMEASURED
    unpriced: str | None = None


class Judges(Protocol):
    """Asks the judges of one work item: limits, retries, recording and cost are its business."""

    async def ask(self, spec: JudgeSpec, question: JudgeQuestion) -> JudgeAnswer:
        """Return the reply.

        Raise `TargetError` where there is none (`NO_JUDGE`), or `SkippedError`.
        """

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text; raise as `ask` does."""


class Embedded(NamedTuple):
    """Vectors in the order of the texts."""

    vectors: tuple[tuple[float, ...], ...]
    model: str | None = None
    metrics: Metrics = UNMEASURED
    unpriced: str | None = None


class NoJudges:
    """The judges where there are none."""

    async def ask(self, spec: JudgeSpec, question: JudgeQuestion) -> JudgeAnswer:  # noqa: ARG002 - the protocol's parameters
        """Raise `TargetError`."""
        raise TargetError("judge", NO_JUDGE)

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Embedded:  # noqa: ARG002 - the protocol's parameters
        """Raise `TargetError`."""
        raise TargetError("judge", NO_JUDGE)


NO_JUDGES = NoJudges()


def added(metrics: Sequence[Metrics]) -> Metrics:
    """Return what several calls, one after another, took: sums; None where nothing was measured.

    The cost is None if one call's is unknown.
    """
    costs = [call.cost_usd for call in metrics if call.cost_usd is not None]
    times = [call.latency_ms for call in metrics if call.latency_ms is not None]
    return Metrics(
        latency_ms=round(fsum(times), 1) if times else None,
        cost_usd=fsum(costs) if costs and len(costs) == len(metrics) else None,
        **sum_tokens(metrics),
    )


class CannedJudges(NoJudges):
    """Every judge gives the same reply, a text or a JSON value; there are no embeddings."""

    def __init__(self, reply: Any) -> None:
        self._text = reply if isinstance(reply, str) else orjson.dumps(reply).decode()

    async def ask(self, spec: JudgeSpec, question: JudgeQuestion) -> JudgeAnswer:  # noqa: ARG002 - the protocol's parameters
        """Return the reply."""
        return JudgeAnswer(self._text, "judge")


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of the angle; raise `ValueError` for vectors that have none."""
    if len(left) != len(right):
        raise ValueError(f"the embeddings have {len(left)} and {len(right)} dimensions")
    lengths = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    if not lengths or not math.isfinite(lengths):
        raise ValueError("an embedding has no direction")
    return math.fsum(x * y for x, y in zip(left, right, strict=True)) / lengths

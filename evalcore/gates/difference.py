"""A difference of scores against a margin: surely not below it, surely below it, or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from evalcore.gates.wording import number
from evalcore.mistakes.wording import counted
from evalcore.model.gate import GateOutcome
from evalcore.model.tolerance import reaches
from evalcore.statistics.intervals import (
    DIFFERENCES,
    FEW_CLUSTERS,
    Moments,
    bounded_interval,
    cases_to_decide,
)


class GateVerdict(NamedTuple):
    """What is decided of one variant, and why."""

    outcome: GateOutcome
    message: str
    details: Mapping[str, Any]
    remedy: str | None = None


class PairedSample(NamedTuple):
    """The moments of paired differences, and what of them is noise of the `iterations`.

    `lost` says why the differences do not stand for all cases: then they are no pass.
    """

    moments: Moments
    lost: str | None = None
    noise: float | None = None
    iterations: int = 1


def judge_difference(
    subject: str, sample: PairedSample, margin: float, alpha: float
) -> GateVerdict:
    """Return the verdict on a mean difference by its interval of the level 1 − `alpha`.

    An interval above −`margin` passes, one below it fails, any other is inconclusive.
    """
    moments = sample.moments
    low, high, method = bounded_interval(moments, DIFFERENCES, alpha)
    details: dict[str, Any] = {
        "difference": moments.mean,
        "low": low,
        "high": high,
        "method": method,
        "cases": moments.n,
    }
    text = (
        f"{subject}: score difference {number(moments.mean)} "
        f"[{number(low)}, {number(high)}] over {counted(moments.n, 'case')} ({method})"
    )
    if moments.clusters is not None and moments.clusters < FEW_CLUSTERS:
        text += f", only {moments.clusters} clusters"
    if not reaches(-margin, low) and sample.lost is not None:
        return GateVerdict(GateOutcome.INCONCLUSIVE, f"{text}, but {sample.lost}", details)
    if not reaches(-margin, low):
        return GateVerdict(GateOutcome.PASS, f"{text}, above −{number(margin)}", details)
    if not reaches(high, -margin):
        return GateVerdict(GateOutcome.FAIL, f"{text}, below −{number(margin)}", details)
    from evalcore.statistics.power import iterations_to_decide, remedy

    more = details["more_cases"] = cases_to_decide(moments, -margin, alpha)
    repeats = iterations_to_decide(
        moments, -margin, alpha, noise=sample.noise, iterations=sample.iterations
    )
    if repeats is not None:
        details["iterations_each"] = repeats
    message = f"{text}, which holds −{number(margin)}"
    if sample.lost is not None:
        message += f"; {sample.lost}"
    advice = remedy(more, repeats, clustered=moments.clusters is not None)
    return GateVerdict(GateOutcome.INCONCLUSIVE, message, details, advice)


def held_together(
    verdicts: Sequence[GateVerdict], p_values: Sequence[float], alpha: float
) -> list[GateVerdict]:
    """Return the verdicts of several variants; only those fail that Holm rejects at `alpha`.

    `p_values` are the one-sided p of "the difference is at least −margin".
    """
    from evalcore.statistics.tests import holm

    rejected = holm([(p, 1) for p in p_values], alpha)
    return [
        verdict
        if rejects or verdict.outcome is not GateOutcome.FAIL
        else verdict._replace(
            outcome=GateOutcome.INCONCLUSIVE,
            message=f"{verdict.message}, which may be chance among {len(verdicts)} variants",
        )
        for verdict, rejects in zip(verdicts, rejected, strict=True)
    ]

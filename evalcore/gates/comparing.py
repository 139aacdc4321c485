"""The gates that compare with a baseline.

Each takes its checked parameters, the summary and the suite's policy, and never raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evalcore.gates.wording import counted, number
from evalcore.model.comparison import HARD_KINDS, Comparison, Difference, VariantComparison
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary
from evalcore.statistics.exact import iterations_to_decide
from evalcore.statistics.intervals import (
    FEW_CLUSTERS,
    cases_to_decide,
    t_interval,
)
from evalcore.statistics.paired import paired_moments

_SHOWN = 3
_NO_BASELINE = (
    "no baseline is available: name a variant as 'baseline', or an earlier run with "
    "`evalcore baseline set SUITE RUN`"
)


def no_regressions(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if nothing is worse than the baseline's (suite-api.md, Gates).

    Without a baseline it is inconclusive, unless `first_run` is `pass`. With several iterations, a
    regression that may be chance makes it inconclusive (docs/decisions/0017-regressions.md).
    """
    name = "no_regressions"
    if not _was_compared(summary.comparison):
        outcome = GateOutcome(params["first_run"])
        return GateResult(name, outcome, _why_not(summary), {"first_run": params["first_run"]})
    comparison = summary.comparison
    assert comparison is not None  # noqa: S101  (for the type checker: it was compared)
    hard = params["allow_metric_regressions"]
    found = [(one, *_regressions(one, hard=hard)) for one in comparison.variants]
    settled = sum(all_ - unsettled for _, all_, unsettled in found)
    total = sum(all_ for _, all_, _ in found)
    details = {
        "regressions": total,
        "unsettled": total - settled,
        "per_variant": {one.variant: all_ for one, all_, _ in found},
    }
    if total:
        listed = (entry for one in comparison.variants for entry in one.regressions)
        message = f"{counted(total, 'regression')}: {_examples(listed, hard=hard)}"
        if settled:
            return GateResult(name, GateOutcome.FAIL, message, details)
        message += f"; {_chance(comparison)}"
        return GateResult(name, GateOutcome.INCONCLUSIVE, message, details)
    cases = sum(one.compared for one in comparison.variants)
    if comparison.unavailable:
        message = f"no regression where a baseline is, but {'; '.join(comparison.unavailable)}"
        return GateResult(name, GateOutcome(params["first_run"]), message, details)
    message = f"no regression in {counted(cases, 'comparison')} with the baseline"
    ignored = sum(one.regression_count for one in comparison.variants)
    if ignored:
        message += f" ({counted(ignored, 'regression')} of measures allowed)"
    return GateResult(name, GateOutcome.PASS, message, details)


def _was_compared(comparison: Comparison | None) -> bool:
    """Whether there is a case that at least one candidate and its baseline could share."""
    if comparison is None:
        return False
    return any(one.compared or one.missing_count for one in comparison.variants)


def _why_not(summary: Summary) -> str:
    comparison = summary.comparison
    if comparison is not None and comparison.unavailable:
        return "; ".join(comparison.unavailable)
    return summary.no_baseline or _NO_BASELINE


def _regressions(one: VariantComparison, *, hard: bool) -> tuple[int, int]:
    """Return how many regressions count, and how many of those are not settled."""
    kinds = [kind for kind in one.regression_kinds if not hard or kind in HARD_KINDS]
    return (
        sum(one.regression_kinds[kind] for kind in kinds),
        sum(one.unsettled_kinds.get(kind, 0) for kind in kinds),
    )


def _examples(entries: Iterable[Difference], *, hard: bool) -> str:
    kept = [entry for entry in entries if not hard or entry.kind in HARD_KINDS]
    shown = [f"{one.case} [{one.variant}] {_said(one)}" for one in kept[:_SHOWN]]
    return ", ".join([*shown, "…"] if len(kept) > _SHOWN else shown)


def _said(entry: Difference) -> str:
    if entry.was is None or entry.now is None or entry.kind in HARD_KINDS:
        return str(entry.kind)
    return f"{entry.kind} {number(entry.was)} → {number(entry.now)}"


def _chance(comparison: Comparison) -> str:
    """Return why the regressions may be chance, and how many iterations would tell."""
    one = next(one.unsettled for one in comparison.variants if one.unsettled is not None)
    passes = (one.was_passed, one.was_run, one.now_passed, one.now_run)
    seen = "passes {} of {} → {} of {}".format(*passes)
    wanted = iterations_to_decide(*passes, alpha=one.alpha)
    if wanted is None:
        return f"case '{one.case}' ({seen}) may be chance, and iterations alone will not tell"
    more = wanted - min(one.was_run, one.now_run)
    return f"case '{one.case}' ({seen}) may be chance; {more} more iterations would decide"


def no_significant_regression(
    params: Mapping[str, Any], summary: Summary, _policy: Policy
) -> GateResult:
    """Pass if the scores are surely not worse by more than `margin` (spec/statistics.md).

    Surely: the interval of the paired difference at level 1 − `alpha` lies above −margin for every
    candidate. Below it for one candidate fails; anything else is inconclusive.
    """
    name, comparison = "no_significant_regression", summary.comparison
    if not _was_compared(comparison):
        return GateResult(name, GateOutcome.INCONCLUSIVE, _why_not(summary), {})
    assert comparison is not None  # noqa: S101  (for the type checker: it was compared)
    margin, alpha = params["margin"], params["alpha"]
    judged = [_judge(one, margin, alpha) for one in comparison.variants]
    outcomes = [outcome for outcome, _, _ in judged]
    messages = [message for _, message, _ in judged] + list(comparison.unavailable)
    details = {"margin": margin, "alpha": alpha, "variants": [entry for _, _, entry in judged]}
    if GateOutcome.FAIL in outcomes:
        worst = [message for outcome, message, _ in judged if outcome is GateOutcome.FAIL]
        return GateResult(name, GateOutcome.FAIL, "; ".join(worst), details)
    if GateOutcome.INCONCLUSIVE in outcomes or comparison.unavailable:
        return GateResult(name, GateOutcome.INCONCLUSIVE, "; ".join(messages), details)
    return GateResult(name, GateOutcome.PASS, "; ".join(messages), details)


def _judge(
    one: VariantComparison, margin: float, alpha: float
) -> tuple[GateOutcome, str, dict[str, Any]]:
    moments = paired_moments(one.paired)
    details: dict[str, Any] = {"variant": one.variant, "baseline": one.baseline}
    if moments is None:
        few = f"variant '{one.variant}': no interval from fewer than two shared cases (or clusters)"
        return GateOutcome.INCONCLUSIVE, few, details
    low, high, method = t_interval(moments, alpha)
    details |= {
        "difference": moments.mean,
        "low": low,
        "high": high,
        "method": method,
        "cases": moments.n,
    }
    text = (
        f"variant '{one.variant}': score difference {number(moments.mean)} "
        f"[{number(low)}, {number(high)}] over {counted(moments.n, 'case')} ({method})"
    )
    if moments.clusters is not None and moments.clusters < FEW_CLUSTERS:
        text += f", only {moments.clusters} clusters"
    if low > -margin:
        return GateOutcome.PASS, f"{text}, above −{number(margin)}", details
    if high < -margin:
        return GateOutcome.FAIL, f"{text}, below −{number(margin)}", details
    more = cases_to_decide(moments, -margin, alpha)
    details["more_cases"] = more
    if more is None:
        return GateOutcome.INCONCLUSIVE, f"{text}: it lies on the margin", details
    if moments.clusters is None:
        wanted = f"{counted(more, 'more case')} would decide"
    else:
        wanted = f"{counted(more, 'more case')} in as many new clusters would decide"
    return GateOutcome.INCONCLUSIVE, f"{text}: {wanted}", details

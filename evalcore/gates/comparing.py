"""A difference of scores against a margin: surely not below it, surely below it, or neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from evalcore.gates.gate import CaseValue, Gate, SequentialRule, number, unmeasured_items
from evalcore.model.run import GateOutcome, GateResult
from evalcore.model.scoring import is_below, reaches
from evalcore.model.summary import (
    CLOCK_NOISE_MS,
    HARD_KINDS,
    MEASURE_KINDS,
    Difference,
    DifferenceKind,
    Measure,
    Summary,
    VariantComparison,
)
from evalcore.shapes import Level, Share
from evalcore.statistics.intervals import (
    DIFFERENCES,
    FEW_CLUSTERS,
    Moments,
    bounded_interval,
    cases_to_decide,
    p_below,
)
from evalcore.statistics.tests import iterations_to_decide, paired_moments
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.model.suite import Policy


class GateVerdict(NamedTuple):
    """What is decided of one variant, and why."""

    outcome: GateOutcome
    message: str
    details: Mapping[str, Any]
    remedy: str | None = None


class PairedSample(NamedTuple):
    """The moments of a variant's paired differences, and what of them is noise of the `iterations`.

    `unmeasured` says why there are no moments, `lost` why they do not stand for all cases: then
    they are no pass.
    """

    details: Mapping[str, Any]
    moments: Moments | None
    unmeasured: str | None = None
    lost: str | None = None
    noise: float | None = None
    iterations: int = 1


class MarginGate(Gate):
    """A gate on differences of scores that are surely above −`margin`, in every variant."""

    threshold_key: ClassVar[str] = "margin"
    margin: Share = 0.02
    alpha: Level = 0.05

    def judge(self, samples: Sequence[PairedSample], **details: Any) -> GateResult:
        """Return the worst verdict. Of several variants only those fail that Holm rejects."""
        from evalcore.statistics.tests import holm

        verdicts = []
        # The one-sided p of "the difference is at least −margin".
        p_values = [
            1.0 if each.moments is None else p_below(each.moments, -self.margin) for each in samples
        ]
        rejected = holm([(p, 1) for p in p_values], self.alpha / 2)
        for sample, rejects in zip(samples, rejected, strict=True):
            verdict = self._judge_sample(sample)
            if verdict.outcome is GateOutcome.FAIL and not rejects:
                chance = f"{verdict.message}, which may be chance among {len(samples)} variants"
                verdict = verdict._replace(outcome=GateOutcome.INCONCLUSIVE, message=chance)
            verdicts.append(verdict)
        listed = [verdict.details for verdict in verdicts]
        settings = {"margin": self.margin, "alpha": self.alpha}
        return joined(self.gate, verdicts, settings | details | {"variants": listed})

    def _judge_sample(self, sample: PairedSample) -> GateVerdict:
        """Return the verdict by the interval of the level 1 − `alpha`.

        An interval above −`margin` passes, one below it fails, any other is inconclusive.
        """
        moments, margin = sample.moments, self.margin
        if moments is None:
            return GateVerdict(
                GateOutcome.INCONCLUSIVE, sample.unmeasured or "", dict(sample.details)
            )
        low, high, method = bounded_interval(moments, DIFFERENCES, self.alpha)
        details: dict[str, Any] = {
            **sample.details,
            "difference": moments.mean,
            "low": low,
            "high": high,
            "method": method,
            "cases": moments.n,
        }
        text = (
            f"variant '{sample.details['variant']}': score difference {number(moments.mean)} "
            f"[{number(low)}, {number(high)}] over {counted(moments.n, 'case')} ({method})"
        )
        if moments.clusters is not None and moments.clusters < FEW_CLUSTERS:
            text += f", only {moments.clusters} clusters"
        if not reaches(-margin, low):
            if sample.lost is not None:
                return GateVerdict(GateOutcome.INCONCLUSIVE, f"{text}, but {sample.lost}", details)
            return GateVerdict(GateOutcome.PASS, f"{text}, above −{number(margin)}", details)
        if not reaches(high, -margin):
            return GateVerdict(GateOutcome.FAIL, f"{text}, below −{number(margin)}", details)
        from evalcore.statistics.intervals import iterations_to_decide, remedy

        more = details["more_cases"] = cases_to_decide(moments, -margin, self.alpha)
        repeats = iterations_to_decide(
            moments, -margin, self.alpha, noise=sample.noise, iterations=sample.iterations
        )
        if repeats is not None:
            details["iterations_each"] = repeats
        message = f"{text}, which holds −{number(margin)}"
        if sample.lost is not None:
            message += f"; {sample.lost}"
        advice = remedy(more, repeats, clustered=moments.clusters is not None)
        return GateVerdict(GateOutcome.INCONCLUSIVE, message, details, advice)


_MAX_EXAMPLES = 3
FirstRun = Literal["inconclusive", "pass"]
_NO_BASELINE = (
    "no baseline is available: name a variant as 'baseline', or an earlier run with "
    "`evalcore baseline set SUITE RUN`"
)


class NoRegressions(Gate, compares=True):
    """No case passes less often than in the [baseline](#comparison-with-a-baseline), and none of
    its cases is missing. Regressions of metrics (latency, cost, tokens, score) count only with
    `allow_metric_regressions: false`. Without a baseline the outcome is `first_run`. If nothing is
    measured on a side, or the baseline was left out, it is inconclusive.
    """

    value_key: ClassVar[str] = "regressions"
    allow_metric_regressions: bool = True
    first_run: FirstRun = "inconclusive"

    @property
    def needs_assertions(self) -> bool:
        return self.allow_metric_regressions

    def has_failed(self, summary: Summary, policy: Policy, *, repeats: bool) -> bool:
        # Whether several iterations differ by chance depends on how many cases do. Cases of an
        # earlier run that have not run yet look as if they were missing.
        variants = () if summary.comparison is None else summary.comparison.variants
        if repeats or policy.iterations > 1 or any(each.run is not None for each in variants):
            return False
        return self.decide(summary, policy).outcome is GateOutcome.FAIL

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        # A regression over several iterations may be chance (docs/decisions/0017-regressions.md).
        comparison, first_run = summary.comparison, GateOutcome(self.first_run)
        if comparison is None or not comparison.variants:
            return self._without_baseline(summary, first_run)
        hard = self.allow_metric_regressions
        compared = [each for each in comparison.variants if not _unmeasured(each)]
        counted_kinds = [kind for kind in DifferenceKind if not hard or kind in HARD_KINDS]
        counts = [_sum(each.regression_kinds, counted_kinds) for each in compared]
        total = sum(counts)
        unsettled = sum(_sum(each.unsettled_kinds, counted_kinds) for each in compared)
        details: dict[str, Any] = {
            "regressions": total,
            "unsettled": unsettled,
            "per_variant": {each.variant: n for each, n in zip(compared, counts, strict=True)},
        }
        if hard:
            details["allowed"] = {
                str(kind): sum(each.regression_kinds.get(kind, 0) for each in compared)
                for kind in DifferenceKind
                if kind not in HARD_KINDS
            }
        unmeasured = [*dict.fromkeys(filter(None, map(_unmeasured, comparison.variants)))]
        if unmeasured:
            details["unmeasured"] = unmeasured
        messages: list[str] = []
        if total:
            messages.append(_listed(compared, total, hard=hard))
            if total > unsettled:
                return self.fails(messages[0], **details)
            messages.append(_chance(compared))
        if messages or unmeasured:
            return self.inconclusive("; ".join([*messages, *unmeasured]), **details)
        if comparison.unavailable:
            message = f"no regression where a baseline is, but {'; '.join(comparison.unavailable)}"
            return GateResult(self.gate, first_run, message, details)
        return self.passes_if(True, _no_regression(compared), details)

    def _without_baseline(self, summary: Summary, first_run: GateOutcome) -> GateResult:
        outcome, message = first_run, _why_no_baseline(summary)
        if summary.comparison is not None or not summary.is_first_run:
            outcome = GateOutcome.INCONCLUSIVE
        if not summary.counts.measured:
            items = f": {unmeasured_items(summary.counts)}" if summary.counts.planned else ""
            outcome = GateOutcome.INCONCLUSIVE
            message = f"nothing is measured{items}; {message}"
        return GateResult(self.gate, outcome, message, {"first_run": self.first_run})


def _no_regression(compared: Sequence[VariantComparison]) -> str:
    cases = sum(candidate.measured_in_both for candidate in compared)
    message = f"no regression in {counted(cases, 'comparison')} with the baseline"
    ignored = sum(sum(candidate.regression_kinds.values()) for candidate in compared)
    if ignored:
        message += f" ({counted(ignored, 'regression')} of measures allowed)"
    unpaired = sum(candidate.missing_count + candidate.compared for candidate in compared) - cases
    if unpaired:
        message += f"; {counted(unpaired, 'case')} not measured on both sides"
    return message


def _unmeasured(candidate: VariantComparison) -> str | None:
    """Return why nothing can be said of a candidate; None if something can."""
    if candidate.unmeasured is not None:
        return candidate.unmeasured
    if candidate.measured_in_both or any(candidate.regression_kinds.values()):
        return None
    return f"no case of variant '{candidate.variant}' is measured on both sides"


def _lost(candidate: VariantComparison) -> str | None:
    """Return how many cases only the baseline measured; None if there are none."""
    if not candidate.lost:
        return None
    return f"{counted(candidate.lost, 'case')} of the baseline not measured in the candidate"


def _why_no_baseline(summary: Summary) -> str:
    comparison = summary.comparison
    if comparison is not None and comparison.unavailable:
        return "; ".join(comparison.unavailable)
    return summary.no_baseline or _NO_BASELINE


def _sum(numbers: Mapping[DifferenceKind, int], kinds: Sequence[DifferenceKind]) -> int:
    return sum(numbers.get(kind, 0) for kind in kinds)


def _listed(compared: Sequence[VariantComparison], total: int, *, hard: bool) -> str:
    """Return how many regressions there are, and the first of them."""
    what, cases, texts = counted(total, "regression"), 0, []
    for each in compared:
        cases += each.hard_regressed_cases if hard else each.worse_cases
        entries = (*each.regressions, *(() if hard else each.worse_measures))
        texts += [_entry_text(entry) for entry in entries if not hard or entry.kind in HARD_KINDS]
    if 0 < cases < total:  # a case may regress in several kinds
        what += f" in {counted(cases, 'case')}"
    more = ", …" if len(texts) > _MAX_EXAMPLES else ""
    return f"{what}: {', '.join(texts[:_MAX_EXAMPLES])}{more}"


def _entry_text(entry: Difference) -> str:
    text = f"{entry.case} [{entry.variant}] {entry.kind}"
    if entry.was is None or entry.now is None or entry.kind in HARD_KINDS:
        return text
    return f"{text} {number(entry.was)} → {number(entry.now)}"


def _chance(compared: Sequence[VariantComparison]) -> str:
    """Return why the regressions may be chance, and how many iterations would tell."""
    unsettled = next(filter(None, (candidate.unsettled for candidate in compared)))
    passes = (unsettled.was_passed, unsettled.was_run, unsettled.now_passed, unsettled.now_run)
    case = "case '{}' (passes {} of {} → {} of {}) may be chance".format(unsettled.case, *passes)
    iterations = iterations_to_decide(*passes, alpha=unsettled.alpha)
    if iterations is None:
        return f"{case}, and iterations alone will not tell"
    more = iterations - min(unsettled.was_run, unsettled.now_run)
    return f"{case}; {more} more iterations would decide"


Factor = Annotated[float, Field(ge=1)]
_MEASURES: Final = {
    DifferenceKind.LATENCY: "median latency (ms)",
    DifferenceKind.COST: "cost (USD)",
    DifferenceKind.TOKENS: "tokens",
    DifferenceKind.SCORE: "score",
}


class NoMetricRegressions(Gate, compares=True):
    """No metric of the whole run is worse than the [baseline](#comparison-with-a-baseline)'s: the
    median latency, the cost and the tokens by more than their factor, the mean score by more than
    `score`. `null` leaves a metric out. If none is measured on both sides, or the candidate lacks
    cases of the baseline, it is inconclusive.
    """

    value_key: ClassVar[str] = "worse"
    latency: Factor | None = 1.2
    cost: Factor | None = 1.1
    tokens: Factor | None = 1.2
    score: Share | None = 0.1

    def __post_init__(self) -> None:
        if all(value is None for value in self.params.values()):
            raise ValueError("names no metric: at least one is not null")

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        # The cases that both sides measured: cases of one side only would look dearer or cheaper.
        comparison = summary.comparison
        if comparison is None or not comparison.variants:
            return self.inconclusive(_why_no_baseline(summary))
        judged = [self._judge(candidate) for candidate in comparison.variants]
        details = {
            "worse": sum(len(verdict.details["worse"]) for verdict in judged),
            "variants": [verdict.details for verdict in judged],
        }
        return with_unavailable(joined(self.gate, judged, details), comparison.unavailable)

    def _judge(self, candidate: VariantComparison) -> GateVerdict:
        measures = [each for each in candidate.measures if self.params[each.kind] is not None]
        worse = [each for each in measures if self._is_worse(each)]
        details = {
            "variant": candidate.variant,
            "baseline": candidate.baseline,
            "worse": [str(each.kind) for each in worse],
            "metrics": {
                str(each.kind): {"baseline": each.was, "candidate": each.now, "cases": each.cases}
                for each in measures
            },
        }
        subject = f"variant '{candidate.variant}'"
        if (reason := _unmeasured(candidate)) is not None:
            return GateVerdict(GateOutcome.INCONCLUSIVE, reason, details)
        if not measures:
            kinds = ", ".join(kind for kind, value in self.params.items() if value is not None)
            message = f"{subject}: nothing is measured on both sides of {kinds}"
            return GateVerdict(GateOutcome.INCONCLUSIVE, message, details)
        texts = ", ".join(map(_measure_text, worse or measures))
        if worse:
            return GateVerdict(GateOutcome.FAIL, f"{subject} is worse: {texts}", details)
        message = f"{subject} is within bounds: {texts}"
        if (lost := _lost(candidate)) is not None:
            return GateVerdict(GateOutcome.INCONCLUSIVE, f"{message}, but {lost}", details)
        return GateVerdict(GateOutcome.PASS, message, details)

    def _is_worse(self, measure: Measure) -> bool:
        bound = float(self.params[measure.kind])
        if measure.kind is DifferenceKind.SCORE:
            return not reaches(measure.now, measure.was - bound)
        if measure.kind is DifferenceKind.LATENCY and measure.now - measure.was < CLOCK_NOISE_MS:
            return False
        return measure.was > 0 and is_below(measure.was * bound, measure.now)


def _measure_text(measure: Measure) -> str:
    relative = measure.was and measure.now != measure.was and measure.kind in MEASURE_KINDS
    change = f" ({measure.now / measure.was - 1:+.0%})" if relative else ""
    return f"{_MEASURES[measure.kind]} {number(measure.was)} → {number(measure.now)}{change}"


class NoSignificantRegression(MarginGate, compares=True, outcomes=True):
    """The lower end of the interval of the [paired difference](#surely-no-worse) of the scores is
    above −`margin`, for every candidate.
    """

    @property
    def sequential(self) -> SequentialRule:
        # The interval of a whole run has the other half of the level on each side.
        return SequentialRule(CaseValue.DIFFERENCE, -self.margin, self.alpha / 2, per_variant=True)

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        # The interval has the level 1 − alpha. Anything that is neither above nor below −margin is
        # inconclusive, also a case that is measured in the baseline only.
        comparison = summary.comparison
        if comparison is None or not comparison.variants:
            return self.inconclusive(_why_no_baseline(summary))
        result = self.judge(list(map(_paired_sample, comparison.variants)))
        return with_unavailable(result, comparison.unavailable)


def _paired_sample(candidate: VariantComparison) -> PairedSample:
    details = {"variant": candidate.variant, "baseline": candidate.baseline}
    unmeasured, paired = _unmeasured(candidate), candidate.paired
    moments = None if unmeasured else paired_moments(paired)
    if moments is None or paired is None:
        few = "no interval from fewer than two shared cases (or clusters)"
        return PairedSample(details, None, unmeasured or f"variant '{candidate.variant}': {few}")
    lost = _lost(candidate)
    return PairedSample(details, moments, None, lost, paired.noise, paired.iterations)


def joined(gate: str, verdicts: Sequence[GateVerdict], details: Mapping[str, Any]) -> GateResult:
    """Return the result of a gate that has a verdict for each variant: the worst of them."""
    outcomes = [verdict.outcome for verdict in verdicts]
    worst = (GateOutcome.FAIL, GateOutcome.INCONCLUSIVE)
    outcome = next((each for each in worst if each in outcomes), GateOutcome.PASS)
    if outcome is GateOutcome.FAIL:
        verdicts = [verdict for verdict in verdicts if verdict.outcome is outcome]
    message = "; ".join(verdict.message for verdict in verdicts)
    remedies = dict.fromkeys(filter(None, (verdict.remedy for verdict in verdicts)))
    return GateResult(gate, outcome, message, details, "; ".join(remedies) or None)


def with_unavailable(result: GateResult, unavailable: Sequence[str]) -> GateResult:
    """Return the result where some variants were not compared: a pass is inconclusive."""
    if result.outcome is GateOutcome.FAIL or not unavailable:
        return result
    message = "; ".join((result.message, *unavailable))
    return replace(result, outcome=GateOutcome.INCONCLUSIVE, message=message)

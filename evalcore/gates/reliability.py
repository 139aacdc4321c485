"""The gate on repeated success: pass^k over the iterations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from evalcore.declared.parameter_types import Count, Share
from evalcore.gates.gate import Gate
from evalcore.gates.wording import compared
from evalcore.mistakes.wording import counted
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.sample import Sample, UnitSums
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary
from evalcore.model.tolerance import reaches
from evalcore.statistics.intervals import moments_of_units

if TYPE_CHECKING:
    from evalcore.gates.sequential import SequentialRule


@dataclass(frozen=True)
class Reliable(
    Gate,
    example="3",
    outcomes=True,
    query="""
WITH tried AS (
    SELECT
        case_number, variant_number, count(*) AS n, count(*) FILTER (passed) AS c
    FROM items
    WHERE counted AND status IN ('completed', 'error')
    GROUP BY case_number, variant_number
),
attempts AS (
    SELECT
        case_number, variant_number, coalesce(n, 0) AS n, coalesce(c, 0) AS c,
        coalesce(unit, -1 - case_number) AS unit
    FROM cases
    LEFT JOIN tried USING (case_number, variant_number)
    LEFT JOIN case_units USING (case_id)
    WHERE counted
),
known AS (
    SELECT
        case_number, variant_number, unit,
        CASE WHEN c < $k THEN 0.0
            ELSE list_product(list_transform(range(0, $k), i -> (c - i) / (n - i)))
        END AS value
    FROM attempts
    WHERE n >= $k
),
means AS (
    SELECT fsum(value ORDER BY case_number, variant_number) / count(*) AS mean, count(*) AS cases
    FROM known
),
totals AS (
    SELECT unit, fsum(value - mean ORDER BY case_number, variant_number) AS total
    FROM known CROSS JOIN means
    GROUP BY unit
)
SELECT
    (SELECT count(*) FROM attempts), any_value(cases), any_value(mean), count(*),
    fsum(total * total ORDER BY unit), min(total), max(total), fsum(pow(total, 4) ORDER BY unit)
FROM totals CROSS JOIN means
""",
):
    """The mean over the cases of [pass^k](#over-time), the probability that all of `k` attempts
    pass, is at least `threshold`. Fewer than `k` iterations of a case are inconclusive.
    """

    k: Count
    threshold: Share = 0.9

    @property
    def sequential(self) -> SequentialRule:
        from evalcore.gates.sequential import CaseValue, SequentialRule

        return SequentialRule(CaseValue.RELIABILITY, self.threshold, k=int(self.k))

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        from evalcore.statistics.power import remedy_of_threshold

        k = int(self.k)
        (planned, measured, mean, *sums), *_ = self.rows(summary) or [(0, 0, 0.0)]
        if not planned:
            return self.fails("no case was evaluated")
        if short := planned - (measured or 0):
            few = f"{counted(short, 'case')} with fewer than {k} iterations"
            remedy = f"undecided: {k} iterations each would decide this gate"
            return GateResult(
                self.gate, GateOutcome.INCONCLUSIVE, few, {"k": k, "short": short}, remedy
            )
        passed = reaches(mean, self.threshold)
        sign = "≥" if passed else "<"
        cases = counted(planned, "case")
        message = f"pass^{k} {compared(mean, sign, self.threshold)} over {cases}"
        details: dict[str, Any] = {"k": k, "value": mean, "threshold": self.threshold}
        details["cases"] = planned
        result = self.passes_if(passed, message, details)
        clustered, units = summary.score_sample.clustered, UnitSums(*sums)
        in_units = clustered or units.units < planned
        moments = moments_of_units(planned, mean, units, clustered=in_units)
        if passed or moments is None:
            return result
        sample = Sample(
            planned,
            mean,
            units.units,
            moments.standard_error,
            df=moments.df,
            clustered=clustered,
            shape=moments.shape,
        )
        return replace(result, remedy=remedy_of_threshold(sample, self.threshold))

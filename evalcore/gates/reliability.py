"""The gate on repeated success: pass^k over the iterations."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from evalcore.declared.parameter_types import Count, Share
from evalcore.frozen import frozen
from evalcore.gates.gate import Gate
from evalcore.gates.wording import compared
from evalcore.mistakes.wording import counted
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.sample import Sample
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary
from evalcore.model.tolerance import reaches

if TYPE_CHECKING:
    from evalcore.gates.sequential import SequentialRule


@frozen(slots=False)
class Reliable(
    Gate,
    example="3",
    query="""
WITH tried AS (
    SELECT
        case_number, variant_number, count(*) AS n, count(*) FILTER (passed) AS c
    FROM items
    WHERE counted AND status IN ('completed', 'error')
    GROUP BY case_number, variant_number
)
SELECT coalesce(n, 0), coalesce(c, 0), count(*)
FROM cases LEFT JOIN tried USING (case_number, variant_number)
WHERE counted
GROUP BY ALL
ORDER BY ALL
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
        from evalcore.statistics.iterated import pass_all_k
        from evalcore.statistics.remedies import remedy_of_threshold

        k = int(self.k)
        rows = self.rows(summary)
        if not rows:
            return self.fails("no case was evaluated")
        short = sum(cases for n, _, cases in rows if n < k)
        if short:
            few = f"{counted(short, 'case')} with fewer than {k} iterations"
            remedy = f"{k} iterations each would settle it"
            return GateResult(
                self.gate, GateOutcome.INCONCLUSIVE, few, {"k": k, "short": short}, remedy
            )
        values = [(pass_all_k(n, c, k) or 0.0, cases) for n, c, cases in rows]
        total = sum(cases for _, cases in values)
        mean = fsum(value * cases for value, cases in values) / total
        passed = reaches(mean, self.threshold)
        sign = "≥" if passed else "<"
        message = f"pass^{k} {compared(mean, sign, self.threshold)} over {counted(total, 'case')}"
        details = {"k": k, "value": mean, "threshold": self.threshold, "cases": total}
        result = self.passes_if(passed, message, details)
        if passed or total < 2:
            return result
        squares = fsum(cases * (value - mean) ** 2 for value, cases in values)
        error = (squares / (total - 1) / total) ** 0.5
        sample = Sample(total, mean, total, error, df=total - 1)
        remedy_text = remedy_of_threshold(sample, self.threshold)
        return GateResult(self.gate, result.outcome, message, details, remedy_text)

"""The gate that watches the series of the suite's runs: CUSUM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Literal, NamedTuple

from evalcore.declared.parameter_types import Amount
from evalcore.gates.comparing import joined
from evalcore.gates.difference import GateVerdict
from evalcore.gates.over_time import PastGate
from evalcore.gates.wording import number
from evalcore.mistakes.wording import counted
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary
from evalcore.model.tolerance import reaches

_DRIFT_RUNS = 100
_FEWEST_DRIFT_RUNS = 8


class _DriftRow(NamedTuple):
    """A run and variant of the series; `run_id` is None for the run that is decided."""

    variant: str
    run_id: str | None
    cases: int
    score: float | None
    pass_rate: float | None
    latency: float | None
    cost: float | None
    vanished: int
    number: int | None


def _run_number(row: _DriftRow) -> int:
    """Return the run's number, 0 for the run that is decided: its variants stay in their order."""
    return row.number or 0


@dataclass(frozen=True)
class NoDrift(
    PastGate,
    query="""
SELECT variant, run_id, cases, score, pass_rate, latency, cost, 0 AS vanished, number
FROM past_runs SEMI JOIN past_cases USING (number, variant)
WHERE number > (SELECT max(number) FROM past_runs) - 100
UNION ALL
SELECT
    variant, NULL, cases, score, pass_rate, latency, cost,
    (SELECT count(DISTINCT case_id) FROM vanished_cases AS v WHERE v.variant = m.variant), NULL
FROM variant_measures AS m
""",
):
    """The [CUSUM](#over-time) of the suite's last 100 runs with the same cases, this one the last,
    has not moved `sigmas` standard deviations in the bad direction, in any variant. Fewer than 8
    earlier runs are inconclusive.
    """

    metric: Literal["score", "pass_rate", "latency", "cost"] = "score"
    sigmas: Amount = 5.0

    @property
    def needs_assertions(self) -> bool:
        return self.metric in {"score", "pass_rate"}

    @property
    def wanted_runs(self) -> int:
        """The longest series."""
        return _DRIFT_RUNS

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        past = self.past(summary)
        rows = sorted((_DriftRow(*row) for row in self.rows(summary)), key=_run_number)
        current = [row for row in rows if row.run_id is None]
        if not any(row.cases for row in current):
            return self.undecided("no case was evaluated", past)
        if len(past.run_ids) < _FEWEST_DRIFT_RUNS:
            few = f"needs {_FEWEST_DRIFT_RUNS} earlier runs, there are {len(past.run_ids)}"
            return self.undecided(f"{few}{past.absent}", past)
        verdicts = [
            self._judge(now, [row for row in rows if row.run_id and row.variant == now.variant])
            for now in current
        ]
        details = {
            "metric": self.metric,
            "sigmas": self.sigmas,
            "runs": list(past.run_ids),
            "left_out": dict(past.left_out),
            "variants": [verdict.details for verdict in verdicts],
        }
        result = joined(self.gate, verdicts, details)
        message = f"over {past.named}: {result.message}"
        return GateResult(self.gate, result.outcome, message, details)

    def _judge(self, now: _DriftRow, before: Sequence[_DriftRow]) -> GateVerdict:
        subject, last = f"variant '{now.variant}'", getattr(now, self.metric)
        series = (getattr(row, self.metric) for row in before)
        values = [value for value in series if value is not None]
        details: dict[str, Any] = {"variant": now.variant, "value": last}
        if last is None or len(values) < _FEWEST_DRIFT_RUNS:
            few = f"{subject}: {self.metric} is measured in {len(values)} earlier runs"
            missing = " and not in this one" if last is None else ""
            return GateVerdict(GateOutcome.INCONCLUSIVE, f"{few}{missing}", details)
        from evalcore.statistics.tests import cusum, self_starting

        mean = fsum(values) / len(values)
        rising = self.metric in {"latency", "cost"}
        # A rate of n cases moves in steps of 1/n; a hundredth of a measure is noise of the clock.
        resolution = abs(mean) / 100 if rising else 1 / max(1, now.cases)
        scores = list(self_starting([*values, last], resolution))
        sums = cusum([-each for each in scores] if rising else scores, mean=0.0, sigma=1.0)
        details |= {"mean": mean, "cusum": sums[-1]}
        text = f"{subject}: {self.metric} {number(last)}, mean before {number(round(mean, 4))}, "
        if reaches(sums[-1], self.sigmas):
            reached = f"CUSUM {sums[-1]:.1f} ≥ {number(self.sigmas)} standard deviations"
            return GateVerdict(GateOutcome.FAIL, f"{text}{reached}", details)
        below = f"CUSUM {sums[-1]:.1f} < {number(self.sigmas)}"
        if now.vanished:
            below += f", but {counted(now.vanished, 'case')} of earlier runs not in this one"
            return GateVerdict(GateOutcome.INCONCLUSIVE, f"{text}{below}", details)
        return GateVerdict(GateOutcome.PASS, f"{text}{below}", details)

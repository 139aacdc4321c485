"""The gates that compare cases with earlier runs of the suite.

The earlier runs are frozen when a run is planned (pipeline/reuse.py). Their rows are the tables
`past_runs` and `past_cases`, numbered from 1 for the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from evalcore.gates.comparing import GateVerdict, MarginGate, PairedSample, joined
from evalcore.gates.gate import CaseValue, Gate, SequentialRule, compared, number
from evalcore.model.past import PastRuns
from evalcore.model.run import GateOutcome, GateResult
from evalcore.model.scoring import reaches
from evalcore.model.summary import Sample, Summary, UnitSums
from evalcore.shapes import Count, Share, Weight
from evalcore.statistics.intervals import moments_of_units
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.model.suite import Policy

_MAX_EXAMPLES = 3
_CHANCE = 0.05


class PastGate(Gate):
    """A gate that looks back on earlier runs of the suite, `wanted_runs` of them at most."""

    @property
    def wanted_runs(self) -> int:
        """How many of the suite's last runs the gate uses at most."""
        raise NotImplementedError

    def past(self, summary: Summary) -> PastRuns:
        """Return the runs that the gate uses, oldest first."""
        past = summary.past or PastRuns(reason="this run was planned without a history")
        return past.last(self.wanted_runs)

    def undecided(self, message: str, past: PastRuns) -> GateResult:
        """Return the inconclusive result, with the runs in its details."""
        return self.inconclusive(message, **_facts(past))


def _facts(past: PastRuns) -> dict[str, Any]:
    return {"runs": list(past.run_ids), "left_out": dict(past.left_out)}


class NoDropFromHistory(MarginGate, PastGate, outcomes=True, query=True):
    """The lower end of the interval of the [difference from the last `runs` runs](#over-time) with
    the same cases, paired by case, is above −`margin`, in every variant.
    """

    runs: Count = 20

    @property
    def wanted_runs(self) -> int:
        """The runs that are pooled."""
        return self.runs

    @property
    def sequential(self) -> SequentialRule:
        # The interval of a whole run has the other half of the level on each side.
        return SequentialRule(
            CaseValue.PAST_DIFFERENCE, -self.margin, self.alpha / 2, True, self.runs
        )

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        past, rows = self.past(summary), self.rows(summary)
        if not past.run_ids or not rows:
            why = f"no earlier run to compare with{past.absent}"
            return self.undecided(why if rows else "no case was evaluated", past)
        result = self.judge([_paired_sample(*row) for row in rows], **_facts(past))
        return replace(result, message=f"against {past.named}: {result.message}")


def _paired_sample(
    variant: str, cases: int, lost: int, mean: float | None, clustered: bool, *sums: Any
) -> PairedSample:
    """Return a row of gate_no_drop_from_history.sql: a variant's differences, now − the past."""
    details, moments = {"variant": variant, "lost": lost}, None
    if mean is not None:
        moments = moments_of_units(cases, mean, UnitSums(*sums), clustered=clustered)
    few = "no interval from fewer than two cases (or clusters) measured now and before"
    why_lost = f"{counted(lost, 'case')} not measured now or before" if lost else None
    return PairedSample(details, moments, f"variant '{variant}': {few}", why_lost)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_MAX_EXAMPLES]) + (", …" if len(names) > _MAX_EXAMPLES else "")


def may_be_chance(new_failures: int, failed_once: int, runs: int) -> bool:
    """Whether cases that fail in this run only are no more than fail in some run only.

    Where nothing has changed, a case that failed in one run failed in each of the runs, this one
    included, with the same probability: the number that fails in this one is binomial. Where no
    case failed in one of the earlier runs only, nothing shows that the suite is noisy.
    """
    from evalcore.statistics.intervals import incomplete_beta

    if not failed_once:
        return False
    p = incomplete_beta(new_failures, failed_once + 1, 1 / (runs + 1))
    return p > _CHANCE


class NoNewFailures(PastGate, outcomes=True, query=True):
    """No case fails that passed in all of the last `runs` runs that measured it. A flaky case (one
    that differed between iterations or between runs of the same work) never counts. Fewer runs are
    inconclusive, and so are failures that [may be chance](#over-time) and cases or variants without
    a history that fail.
    """

    value_key: ClassVar[str] = "new_failures"
    runs: Count = 5

    @property
    def wanted_runs(self) -> int:
        """More than `runs`: whether a case is flaky shows in the long run."""
        return max(self.runs, 20)

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        past = self.past(summary)
        if not summary.cases:
            return self.undecided("no case was evaluated", past)
        if len(past.run_ids) < self.runs:
            few = f"needs {self.runs} earlier runs, there are {len(past.run_ids)}"
            return self.undecided(f"{few}{past.absent}", past)
        rows = self.rows(summary)
        failures = [row[:2] for row in rows if row[2] and row[4] and not row[3]]
        new = [f"{row[1]} [{row[0]}]" for row in rows if row[2] and row[5]]
        flaky = sum(1 for row in rows if row[2] and row[4] and row[3])
        unmeasured = sum(1 for row in rows if not row[2] and row[4])
        examples = [f"{case} [{variant}]" for variant, case in failures]
        used = past.last(self.runs)
        details = {
            "new_failures": len(failures),
            "cases": examples[:100],
            "new_and_failing": new[:100],
            "flaky": flaky,
            "unmeasured": unmeasured,
            **_facts(used),
        }
        ignored = f"; {counted(flaky, 'flaky case')} not counted" if flaky else ""
        if new:
            ignored = f"; {len(new)} new and failing: {_listed(new)}{ignored}"
        if failures:
            message = (
                f"{counted(len(failures), 'new failure')} since {used.named}: "
                f"{_listed(examples)}{ignored}"
            )
            failed_once, runs = rows[0][6], len(past.run_ids)
            if not may_be_chance(len(failures), failed_once, runs):
                return self.passes_if(False, message, details)
            chance = (
                f"{message}; may be chance: {counted(failed_once, 'case')} that passes now failed "
                f"in one of the last {runs} runs"
            )
            details["failed_once"] = failed_once
            remedy = "undecided: several iterations of each case would decide this gate"
            return replace(self.inconclusive(chance, **details), remedy=remedy)
        if unmeasured:
            message = f"{counted(unmeasured, 'case')} that passed in {used.named} not measured now"
            return self.inconclusive(message + ignored, **details)
        message = f"no case fails that passed in {used.named}{ignored}"
        if new:
            return self.inconclusive(message, **details)
        return self.passes_if(True, message, details)


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


class NoDrift(PastGate, query=True):
    """The [CUSUM](#over-time) of the suite's last 100 runs with the same cases, this one the last,
    has not moved `sigmas` standard deviations in the bad direction, in any variant. Fewer than 8
    earlier runs are inconclusive.
    """

    metric: Literal["score", "pass_rate", "latency", "cost"] = "score"
    sigmas: Weight = 5.0

    @property
    def needs_assertions(self) -> bool:
        return self.metric in {"score", "pass_rate"}

    @property
    def wanted_runs(self) -> int:
        """The longest series."""
        return _DRIFT_RUNS

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        past = self.past(summary)
        rows = sorted(
            (_DriftRow(*row) for row in self.rows(summary)), key=lambda row: row.number or 0
        )
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
            **_facts(past),
            "variants": [verdict.details for verdict in verdicts],
        }
        result = joined(self.gate, verdicts, details)
        return replace(result, message=f"over {past.named}: {result.message}")

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


class Reliable(Gate, example="3", outcomes=True, query=True):
    """The mean over the cases of [pass^k](#over-time), the probability that all of `k` attempts
    pass, is at least `threshold`. Fewer than `k` iterations of a case are inconclusive.
    """

    k: Count
    threshold: Share = 0.9

    @property
    def sequential(self) -> SequentialRule:
        return SequentialRule(CaseValue.RELIABILITY, self.threshold, k=self.k)

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        from evalcore.statistics.intervals import remedy_of_threshold

        k = self.k
        (planned, measured, mean, *sums), *_ = self.rows(summary) or [(0, 0, 0.0)]
        if not planned:
            return self.fails("no case was evaluated")
        if short := planned - (measured or 0):
            few = f"{counted(short, 'case')} with fewer than {k} iterations"
            remedy = f"undecided: {k} iterations each would decide this gate"
            return replace(self.inconclusive(few, k=k, short=short), remedy=remedy)
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
        n, mean, error, df, _, shape = moments
        sample = Sample(n, mean, units.units, error, df=df, clustered=clustered, shape=shape)
        return replace(result, remedy=remedy_of_threshold(sample, self.threshold))

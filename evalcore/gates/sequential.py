"""Gates that may be decided before all cases are run, at any moment, at their level.

Cases come in a random order. A gate on a share or mean of the suite is decided about all of the
suite's cases (drawn without replacement), a gate on a difference about the cases they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from evalcore.model.gate import GateOutcome
from evalcore.statistics.sequential import MeanTest, mcnemar_e_value


class CaseValue(StrEnum):
    """What a sequential gate reads of a case."""

    SCORE = "score"
    PASSED = "passed"
    DIFFERENCE = "difference"
    PAST_DIFFERENCE = "past_difference"
    RELIABILITY = "reliability"


DIFFERENCES = frozenset({CaseValue.DIFFERENCE, CaseValue.PAST_DIFFERENCE})


class SequentialRule(NamedTuple):
    """Passes once the mean of a value is surely at least the boundary, fails once it surely is not.

    Each side errs with probability `alpha` at most. `per_variant`: every variant has to pass.
    """

    value: CaseValue
    boundary: float
    alpha: float = 0.05
    per_variant: bool = False
    k: int = 1


class SeenValue(NamedTuple):
    """A value of one case; without a `variant`, the sum over so many `variants` of the case."""

    case_number: int
    value: CaseValue
    variant: str
    number: float
    variants: int = 1


class SequentialGate:
    """One gate's tests: of the whole suite, or of each variant at a share of the level."""

    def __init__(self, rule: SequentialRule, variants: Sequence[str], cases: int) -> None:
        self.rule = rule
        names = list(variants) if rule.per_variant else [""]
        self._most_variants = 1 if rule.per_variant else max(len(variants), 1)
        self._tests = {name: _Test(rule, cases) for name in names}
        # Any of several variants may fail the gate by chance: Bonferroni. All have to pass.
        self._fail_bound = math.log(len(names) / rule.alpha)
        self._pass_bound = math.log(1 / rule.alpha)
        self.outcome: GateOutcome | None = None
        self.cases = 0

    def add(self, values: Iterable[SeenValue]) -> None:
        """Take the values of the next case; the outcome stays once there is one."""
        if self.outcome is not None:
            return
        self.cases += 1
        for case_value in values:
            test = self._tests.get(case_value.variant)
            if case_value.value is self.rule.value and test is not None:
                test.add(self._pooled(case_value))
        if any(test.log_below >= self._fail_bound for test in self._tests.values()):
            self.outcome = GateOutcome.FAIL
        elif all(test.log_above >= self._pass_bound for test in self._tests.values()):
            self.outcome = GateOutcome.PASS

    def _pooled(self, value: SeenValue) -> float:
        """Return the case's value, whose mean over the cases reaches the boundary if the mean over
        all cases × variants does: what a case lacks of the variants counts as the boundary."""
        most = self._most_variants
        return value.number / most + self.rule.boundary * (1 - value.variants / most)


class _Test:
    """The E-values of one mean: below and above the boundary."""

    def __init__(self, rule: SequentialRule, cases: int) -> None:
        self._is_difference = rule.value in DIFFERENCES
        if self._is_difference:
            self._mean = MeanTest((1 + rule.boundary) / 2)
        else:
            self._mean = MeanTest(rule.boundary, cases)
        self._worse = self._better = 0
        self._binary = self._is_difference and rule.boundary == 0

    def add(self, value: float) -> None:
        if self._is_difference:
            self._binary = self._binary and value in {-1.0, 0.0, 1.0}
            self._worse += value < 0
            self._better += value > 0
            value = (1 + value) / 2
        self._mean.add(value)

    @property
    def log_above(self) -> float:
        return self._with_mcnemar(self._mean.log_above, self._better > self._worse)

    @property
    def log_below(self) -> float:
        return self._with_mcnemar(self._mean.log_below, self._worse > self._better)

    def _with_mcnemar(self, log_e: float, favoured: bool) -> float:
        """Return the mean of both E-values, which is one, where each difference is a pass."""
        if not (self._binary and favoured):
            return log_e - (math.log(2) if self._binary else 0.0)
        e_value = mcnemar_e_value(self._worse, self._better)
        return math.log((math.exp(min(log_e, 700.0)) + e_value) / 2)


class SequentialGates:
    """The gates of a run that may be decided early, by their place in the policy.

    `needs_all`: another gate needs the whole run, so that only a failure ends it early.
    """

    def __init__(
        self,
        rules: Mapping[int, SequentialRule],
        variants: Sequence[str],
        baseline: str | None,
        cases: int,
        *,
        needs_all: bool = False,
    ) -> None:
        self._needs_all = needs_all
        compared = [name for name in variants if name != baseline]
        self.gates = {
            index: SequentialGate(
                rule, compared if rule.value is CaseValue.DIFFERENCE else variants, cases
            )
            for index, rule in rules.items()
        }
        self.cases = 0

    @property
    def failed(self) -> bool:
        """Whether one of them has failed."""
        return any(gate.outcome is GateOutcome.FAIL for gate in self.gates.values())

    @property
    def decided(self) -> bool:
        """Whether each of them is decided, or one has failed: then the run fails."""
        outcomes = [gate.outcome for gate in self.gates.values()]
        passed = bool(outcomes) and None not in outcomes and not self._needs_all
        return GateOutcome.FAIL in outcomes or passed

    def add(self, values: Sequence[SeenValue]) -> None:
        """Take the values of the next case, unless all is decided."""
        if self.decided:
            return
        self.cases += 1
        for gate in self.gates.values():
            gate.add(values)

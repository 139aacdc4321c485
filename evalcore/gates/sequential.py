"""Gates that may be decided before all cases are run, at any moment, at their level.

Cases come in a random order. A gate on a share or mean of the suite is decided about all of the
suite's cases (drawn without replacement), a gate on a difference about the cases they stand for.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evalcore.gates.gate import DIFFERENCES, CaseValue, SequentialRule
from evalcore.model.run import GateOutcome
from evalcore.model.scoring import reaches
from evalcore.statistics.sequential import MeanTest, RoundMeanTest, mcnemar_e_value


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
        self.outcome = _outcome(list(self._tests.values()), self.rule.alpha)

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


def _outcome(tests: Sequence[_Test | RoundMeanTest], alpha: float) -> GateOutcome | None:
    """Return what the tests of the variants say; None as long as it is open."""
    # Any of several variants may fail the gate by chance: Bonferroni. All have to pass.
    if any(test.log_below >= math.log(len(tests) / alpha) for test in tests):
        return GateOutcome.FAIL
    passed = all(test.log_above >= math.log(1 / alpha) for test in tests)
    return GateOutcome.PASS if passed else None


class _Gates:
    """The gates of a run that may be decided early, by their place in the policy.

    `beside_failed` is set where a gate beside them has failed.
    """

    def __init__(
        self,
        rules: Mapping[int, SequentialRule],
        variants: Sequence[str],
        baseline: str | None,
        most: int,
    ) -> None:
        self._rules = rules
        self._most = most
        self._variants = tuple(variants)
        self._compared = tuple(name for name in variants if name != baseline)
        self.gates: dict[int, Any] = {}
        self.beside_failed = False

    def _variants_of(self, rule: SequentialRule) -> Sequence[str]:
        return self._compared if rule.value is CaseValue.DIFFERENCE else self._variants

    @property
    def failed(self) -> bool:
        """Whether one of them has failed, or a gate beside them."""
        return self.beside_failed or any(
            gate.outcome is GateOutcome.FAIL for gate in self.gates.values()
        )

    @property
    def decided(self) -> bool:
        """Whether each of them is decided, or one has failed: then the run fails."""
        outcomes = [gate.outcome for gate in self.gates.values()]
        passed = bool(outcomes) and None not in outcomes
        return self.failed or passed


class SequentialGates(_Gates):
    """The gates that are looked at after each of `most` cases."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.gates: dict[int, SequentialGate] = {
            index: SequentialGate(rule, self._variants_of(rule), self._most)
            for index, rule in self._rules.items()
        }
        self.cases = 0

    def add(self, values: Sequence[SeenValue]) -> None:
        """Take the values of the next case, unless all is decided."""
        if not self.decided:
            self.cases += 1
            for gate in self.gates.values():
                gate.add(values)


# Most runs are decided by their first round, or by none.
_FIRST_ROUND = 0.5


class RoundItem(NamedTuple):
    """An item of a round; `score` and `passed` are None where it counts for nothing."""

    case_number: int
    variant: str
    group: str
    score: float | None
    passed: float | None


class RoundGate:
    """The tests of one gate over the rounds; `outcome` stays once there is one."""

    def __init__(
        self, rule: SequentialRule, variants: Sequence[str], rounds: int, items: Sequence[RoundItem]
    ) -> None:
        self.rule = rule
        self.rounds = 0
        self.outcome: GateOutcome | None = None
        self._most = rounds
        self._variants = tuple(variants)
        self._names = self._variants if rule.per_variant else ("",)
        self._tests = {name: self._test(name, items) for name in self._names}
        self._is_measured = True
        self._passes: Counter[tuple[int, str]] = Counter()

    def _test(self, name: str, items: Sequence[RoundItem]) -> RoundMeanTest:
        own = self._own(name, items)
        weights = [1 / max(len(own), 1)] * len(own)
        if self.rule.value is CaseValue.SCORE:
            sizes = Counter(item.group for item in own)
            weights = [1 / len(sizes) / sizes[item.group] for item in own]
        return RoundMeanTest(self.rule.boundary, weights, self._most, self.rule.alpha)

    def _own(self, name: str, items: Sequence[RoundItem]) -> list[RoundItem]:
        return [item for item in items if not name or item.variant == name]

    @property
    def mean(self) -> float:
        """The mean so far; of several variants the lowest."""
        return min(test.mean for test in self._tests.values())

    def add(self, items: Sequence[RoundItem], values: Sequence[SeenValue]) -> None:
        """Take the next round: its items, and the values of all rounds so far of each case."""
        if self.outcome is not None:
            return
        self.rounds += 1
        if self.rule.value in DIFFERENCES:
            self.outcome = self._difference(values)
        elif self.rule.value is CaseValue.RELIABILITY:
            self.outcome = self._reliability(items)
        else:
            self.outcome = self._mean(items)

    def _mean(self, items: Sequence[RoundItem]) -> GateOutcome | None:
        for name, test in self._tests.items():
            own = self._own(name, items)
            is_score = self.rule.value is CaseValue.SCORE
            test.add([item.score if is_score else item.passed for item in own])
        return _outcome(list(self._tests.values()), self.rule.alpha)

    def _reliability(self, items: Sequence[RoundItem]) -> GateOutcome | None:
        """Return what the rounds to come cannot change."""
        self._is_measured = self._is_measured and all(item.passed is not None for item in items)
        left = self._most - self.rounds
        keys = [(item.case_number, item.variant) for item in items]
        for key, item in zip(keys, items, strict=True):
            self._passes[key] += item.passed == 1.0
        if not keys or not self._is_measured:
            return None
        least = [self._reliable(self._passes[key]) for key in keys]
        most = [self._reliable(self._passes[key] + left) for key in keys]
        boundary = self.rule.boundary * len(keys)
        if not reaches(math.fsum(most), boundary, len(keys)):
            return GateOutcome.FAIL
        return GateOutcome.PASS if reaches(math.fsum(least), boundary, len(keys)) else None

    def _reliable(self, passes: int) -> float:
        """Return pass^k of a case over the whole run."""
        k = min(self.rule.k, self._most)
        return math.comb(passes, k) / math.comb(self._most, k)

    def _difference(self, values: Sequence[SeenValue]) -> GateOutcome | None:
        rule = self.rule._replace(alpha=self.rule.alpha * self._share())
        own = [value for value in values if value.value is rule.value]
        by_case: dict[int, list[SeenValue]] = {}
        for value in own:
            by_case.setdefault(value.case_number, []).append(value)
        numbers = list(by_case)
        # The cases are a sample, and files have them sorted.
        random.Random(len(numbers)).shuffle(numbers)  # noqa: S311  (no secret)
        gate = SequentialGate(rule, self._variants, max(len(numbers), 1))
        for number in numbers:
            gate.add(by_case[number])
        return gate.outcome

    def _share(self) -> float:
        """Return the part of the level that this round has; the sum of all is 1."""
        if self._most == 1:
            return 1.0
        return _FIRST_ROUND if self.rounds == 1 else (1 - _FIRST_ROUND) / (self._most - 1)


class RoundGates(_Gates):
    """The gates that are looked at after each of `most` iterations of all cases."""

    gates: dict[int, RoundGate]
    rounds = 0
    varied = False

    @property
    def futile(self) -> bool:
        """Whether only differences are open, and no iteration of any case has differed."""
        undecided = [gate for gate in self.gates.values() if gate.outcome is None]
        differ = bool(undecided) and all(gate.rule.value in DIFFERENCES for gate in undecided)
        return self.rounds > 1 and not self.varied and differ

    @property
    def ended(self) -> bool:
        """Whether another iteration cannot decide anything."""
        return self.decided or self.futile

    def add(self, items: Sequence[RoundItem], values: Iterable[SeenValue]) -> None:
        """Take the next round of all cases, unless all is decided."""
        if self.ended:
            return
        scores = {(item.case_number, item.variant): item.score for item in items}
        if not self.rounds:
            self.gates = {
                index: RoundGate(rule, self._variants_of(rule), self._most, items)
                for index, rule in self._rules.items()
            }
            self._first = scores
        self.varied = self.varied or any(self._first.get(key) != scores[key] for key in scores)
        self.rounds += 1
        measured = list(values)
        for gate in self.gates.values():
            gate.add(items, measured)

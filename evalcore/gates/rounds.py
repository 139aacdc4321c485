"""Gates that are looked at after each iteration of all cases, at their level.

A gate on a mean is decided about the whole run: all cases with the largest number of iterations. A
gate on a difference is decided about the cases that those of the suite stand for: its level is
shared by the rounds.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from evalcore.gates.sequential import (
    DIFFERENCES,
    CaseValue,
    SeenValue,
    SequentialGate,
    SequentialRule,
)
from evalcore.model.gate import GateOutcome
from evalcore.model.tolerance import reaches
from evalcore.statistics.sequential import RoundMeanTest

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
        # Any of several variants may fail the gate by chance: Bonferroni. All have to pass.
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
        fail_bound = math.log(len(self._tests) / self.rule.alpha)
        if any(test.log_below >= fail_bound for test in self._tests.values()):
            return GateOutcome.FAIL
        pass_bound = math.log(1 / self.rule.alpha)
        if all(test.log_above >= pass_bound for test in self._tests.values()):
            return GateOutcome.PASS
        return None

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


class RoundGates:
    """The gates of a run that are looked at after each round, by their place in the policy.

    `failed` is set where a gate beside them has failed. `needs_all`: another gate needs all rounds.
    """

    def __init__(
        self,
        rules: Mapping[int, SequentialRule],
        variants: Sequence[str],
        baseline: str | None,
        rounds: int,
        *,
        needs_all: bool = False,
    ) -> None:
        self._rules = rules
        self._needs_all = needs_all
        self._variants = tuple(variants)
        self._compared = tuple(name for name in variants if name != baseline)
        self._most = rounds
        self._first: dict[tuple[int, str], float | None] = {}
        self.gates: dict[int, RoundGate] = {}
        self.rounds = 0
        self.varied = False
        self.failed = False

    @property
    def decided(self) -> bool:
        """Whether each of them is decided, or one has failed: then the run fails."""
        outcomes = [gate.outcome for gate in self.gates.values()]
        failed = self.failed or GateOutcome.FAIL in outcomes
        return failed or (bool(outcomes) and None not in outcomes and not self._needs_all)

    @property
    def futile(self) -> bool:
        """Whether only differences are open, and no iteration of any case has differed."""
        undecided = [gate for gate in self.gates.values() if gate.outcome is None]
        return (
            self.rounds > 1
            and not self.varied
            and bool(undecided)
            and all(gate.rule.value in DIFFERENCES for gate in undecided)
        )

    @property
    def ended(self) -> bool:
        """Whether another iteration cannot decide anything."""
        return self.decided or self.futile

    def add(self, items: Sequence[RoundItem], values: Iterable[SeenValue]) -> None:
        """Take the next round of all cases, unless all is decided."""
        if self.ended:
            return
        if not self.rounds:
            self.gates = {index: self._gate(rule, items) for index, rule in self._rules.items()}
            self._first = {(item.case_number, item.variant): item.score for item in items}
        self.varied = self.varied or any(
            self._first.get((item.case_number, item.variant)) != item.score for item in items
        )
        self.rounds += 1
        measured = list(values)
        for gate in self.gates.values():
            gate.add(items, measured)

    def _gate(self, rule: SequentialRule, items: Sequence[RoundItem]) -> RoundGate:
        variants = self._compared if rule.value is CaseValue.DIFFERENCE else self._variants
        return RoundGate(rule, variants, self._most, items)

"""Cases × variants × iterations → work items, in the plan's order and with their identities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evalcore.model.assertion import Assertion
from evalcore.model.identity import (
    METADATA_APART_SINCE,
    assertions_identity,
    case_code,
    case_identity,
    exec_key,
    grade_key,
    grading_identity,
    judges_identity,
    judges_named,
    metadata_identity,
    scorers_identity,
    sees_metadata,
    target_identity,
)
from evalcore.model.run import Plan
from evalcore.model.suite import Case, Format, SuiteDefinition
from evalcore.model.target import Target, Variant

MAX_SHARED_ASSERTIONS = 1_000


class WorkItem(NamedTuple):
    """The unit that is executed, recorded, resumed, counted; `number` is its place in the plan."""

    number: int
    case: Case
    variant: Variant
    target: Target | None
    iteration: int
    exec_key: str
    grade_key: str

    @property
    def is_for_target(self) -> bool:
        """Whether the case is for the target of the item's variant."""
        targets = self.case.targets
        return not targets or self.variant.target in targets


class _Graded(NamedTuple):
    """What grades a case: its assertions, their digest, the judges that they name."""

    assertions: tuple[Assertion, ...]
    digest: bytes
    judges: tuple[str | None, ...]


class Expander:
    """Turns cases into work items; keeps the digests of the targets."""

    def __init__(self, suite: SuiteDefinition) -> None:
        self._suite = suite
        executed = suite.executed_code
        self._executed_code = suite.code if executed is None else executed
        self._is_script = suite.format is Format.SCRIPT_SUITE
        self._scorers = scorers_identity(suite.scorers, suite.code)
        judges = [
            scorer.params.get("judge") for scorer in suite.scorers if scorer.kind == "llm_judge"
        ]
        if judges:
            self._scorers += judges_identity(judges, None, suite)
        self._keeps_apart = suite.file_rules >= METADATA_APART_SINCE
        self._digests: dict[tuple[str | None, str], tuple[Target | None, bytes]] = {}
        self._assertions: dict[tuple[int, ...], _Graded] = {}

    def expand(self, case: Case, first: int, numbers: range) -> Iterator[WorkItem]:
        """Yield the work items of a case that are among `numbers`; `first` is its first one."""
        number = first
        executions: dict[bool, bytes] = {}
        by = self._graded(case.assertions)
        grading = grading_identity(case, by.digest) + self._scorers
        for variant in self._suite.variants:
            target, digest = self.target_of(case.target, variant)
            sees = not self._keeps_apart or sees_metadata(case, target)
            if sees not in executions:
                executions[sees] = self._execution(case, with_metadata=sees)
            executed = executions[sees]
            graded = grading + (b"" if sees else metadata_identity(case.metadata))
            if by.judges:
                graded += judges_identity(by.judges, target, self._suite)
            for iteration in range(self._suite.policy.iterations):
                if number in numbers:
                    key = exec_key(executed, digest, iteration)
                    grade = grade_key(key, graded)
                    yield WorkItem(number, case, variant, target, iteration, key, grade)
                number += 1

    def _execution(self, case: Case, *, with_metadata: bool) -> bytes:
        executed = case_identity(case, with_metadata=with_metadata)
        if self._executed_code:
            executed += case_code(case, self._executed_code, is_script=self._is_script)
        return executed

    def _graded(self, assertions: tuple[Assertion, ...]) -> _Graded:
        """Return the assertions' digest; cases that share all the objects share it."""
        objects = tuple(map(id, assertions))
        if (shared := self._assertions.get(objects)) is not None:
            return shared
        if len(self._assertions) >= MAX_SHARED_ASSERTIONS:
            self._assertions.clear()
        # The entry keeps the objects alive, so their ids cannot be others' meanwhile.
        digest = assertions_identity(assertions, self._suite.code)
        graded = _Graded(assertions, digest, judges_named(assertions))
        self._assertions[objects] = graded
        return graded

    def target_of(self, named: str | None, variant: Variant) -> tuple[Target | None, bytes]:
        """Return the target that a case names, else the variant's or the suite's; its digest."""
        key = (named, variant.id)
        digested = self._digests.get(key)
        if digested is None:
            name = named or variant.target or self._suite.default_target
            target = None if name is None else self._suite.targets.get(name)
            digested = target, target_identity(target, variant, self._executed_code)
            self._digests[key] = digested
        return digested


def expand_shard(
    expander: Expander, plan: Plan, shard: int, cases: Sequence[Case]
) -> list[WorkItem]:
    """Return the work items of a shard in order; `cases` are those of `cases_of_shard`."""
    numbers = plan.shard_items(shard)
    first_case = numbers.start // plan.items_per_case
    items: list[WorkItem] = []
    for offset, case in enumerate(cases):
        items.extend(expander.expand(case, (first_case + offset) * plan.items_per_case, numbers))
    return items


def cases_of_shard(plan: Plan, shard: int) -> range:
    """Return the indices of the cases that a shard's items belong to."""
    items = plan.shard_items(shard)
    return range(items.start // plan.items_per_case, (items.stop - 1) // plan.items_per_case + 1)

"""The table of condition kinds: one class each, chosen by `kind`; two of them nest others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from evalcore.checks.base import Fault
from evalcore.checks.conditions.base import Condition, ConditionServices, type_error
from evalcore.checks.conditions.judged import LlmJudgedAs, LlmNotJudgedAs
from evalcore.checks.conditions.splits import SplitIouGte
from evalcore.checks.conditions.texts import EndsWith, MatchesRegex, SimilarityGte, StartsWith
from evalcore.checks.conditions.values import (
    ArrayContains,
    Between,
    Contains,
    Equals,
    Exists,
    JsonSchemaValid,
    LengthCompare,
    NotContains,
    NotEquals,
    NotExists,
    NumberCompare,
    ObjectContains,
)
from evalcore.checks.conditions.verdict import PASSED, ConditionVerdict, failed
from evalcore.mistakes.wording import counted
from evalcore.model.assertion import Outcome


class _NestedCondition(Condition):
    """A condition on the elements of a list; on anything else it is blocked."""

    condition: AnyCondition

    @property
    def asks_judge(self) -> bool:
        """Whether the nested condition does."""
        return bool(self.condition.asks_judge)

    @property
    def asks_embeddings(self) -> bool:
        """Whether the nested condition does."""
        return bool(self.condition.asks_embeddings)

    def mistakes(self) -> Iterable[str]:
        """Return those of the nested condition."""
        return self.condition.mistakes()

    def faults(self) -> Iterator[Fault]:
        """Yield those of the nested condition."""
        for fault in self.condition.faults():
            yield fault._replace(path=("condition", *fault.path))

    @property
    def expected_value(self) -> Any:
        """The nested condition."""
        return self.condition.model_dump(mode="json", by_alias=True)

    async def evaluate(self, value: Any, services: ConditionServices) -> ConditionVerdict:
        """Return the verdict on the list, by the verdicts on its elements."""
        if not isinstance(value, list):
            return type_error("a list", value)
        return self.joined([await self.condition.evaluate(each, services) for each in value])

    def joined(self, verdicts: Sequence[ConditionVerdict]) -> ConditionVerdict:
        """Return the verdict on the list."""
        raise NotImplementedError


class AllItemsMatch(_NestedCondition):
    """The nested condition holds for every element; an empty list passes."""

    kind: Literal["all_items_match"]

    def joined(self, verdicts: Sequence[ConditionVerdict]) -> ConditionVerdict:
        """Return failed if it fails for one element, else blocked if it is for one."""
        for outcome in (Outcome.FAILED, Outcome.BLOCKED):
            for index, verdict in enumerate(verdicts):
                if verdict.outcome is outcome:
                    return _at(index, verdict)
        return PASSED


class AnyItemMatches(_NestedCondition):
    """The nested condition holds for one element; an empty list fails."""

    kind: Literal["any_item_matches"]

    def joined(self, verdicts: Sequence[ConditionVerdict]) -> ConditionVerdict:
        """Return passed if it holds for one element, else blocked if it is for one."""
        if any(verdict.outcome is Outcome.PASSED for verdict in verdicts):
            return PASSED
        for index, verdict in enumerate(verdicts):
            if verdict.outcome is Outcome.BLOCKED:
                return _at(index, verdict)
        return failed(f"none of {counted(len(verdicts), 'element')} matches")


AnyCondition = Annotated[
    Exists
    | NotExists
    | Equals
    | NotEquals
    | Contains
    | NotContains
    | NumberCompare
    | Between
    | StartsWith
    | EndsWith
    | MatchesRegex
    | ObjectContains
    | ArrayContains
    | LengthCompare
    | JsonSchemaValid
    | AllItemsMatch
    | AnyItemMatches
    | SimilarityGte
    | LlmJudgedAs
    | LlmNotJudgedAs
    | SplitIouGte,
    Field(discriminator="kind"),
]

for nested in (_NestedCondition, AllItemsMatch, AnyItemMatches):
    nested.model_rebuild()

CONDITION: TypeAdapter[Any] = TypeAdapter(AnyCondition)


def _at(index: int, verdict: ConditionVerdict) -> ConditionVerdict:
    return ConditionVerdict(verdict.outcome, f"element {index}: {verdict.message}", verdict.code)

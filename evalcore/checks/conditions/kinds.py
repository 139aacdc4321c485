"""The table of condition kinds: one class each, chosen by `kind`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from evalcore.checks.conditions.base import Condition
from evalcore.checks.conditions.collections import AllItemsMatch, AnyItemMatches
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

for nested in (AllItemsMatch, AnyItemMatches):
    nested.model_rebuild(_types_namespace={"AnyCondition": AnyCondition})

CONDITION: TypeAdapter[Any] = TypeAdapter(AnyCondition)
__all__ = ["CONDITION", "AnyCondition", "Condition"]

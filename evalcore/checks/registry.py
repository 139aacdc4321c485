"""The table of checks: under which name which class stands."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import UsageError
from evalcore.mistakes.wording import suggest

if TYPE_CHECKING:
    from evalcore.checks.base import Check


class CheckRow(NamedTuple):
    """Where a check stands; its module is imported when the check is first used."""

    module: str
    name: str
    is_async: bool = False


CHECKS: Final[Mapping[str, CheckRow]] = {
    "contains": CheckRow("text", "Contains"),
    "contains-any": CheckRow("text", "ContainsAny"),
    "contains-all": CheckRow("text", "ContainsAll"),
    "starts-with": CheckRow("text", "StartsWith"),
    "ends-with": CheckRow("text", "EndsWith"),
    "equals": CheckRow("text", "Equals"),
    "word-count": CheckRow("text", "WordCount"),
    "regex": CheckRow("regex", "Regex"),
    "is-json": CheckRow("json", "IsJson"),
    "contains-json": CheckRow("json", "ContainsJson"),
    "equals-json": CheckRow("json", "EqualsJson"),
    "levenshtein": CheckRow("similarity", "Levenshtein"),
    "bleu": CheckRow("similarity", "Bleu"),
    "rouge-n": CheckRow("similarity", "RougeN"),
    "cost": CheckRow("measures", "Cost"),
    "latency": CheckRow("measures", "Latency"),
    "tokens": CheckRow("measures", "Tokens"),
    "input-tokens": CheckRow("measures", "InputTokens"),
    "output-tokens": CheckRow("measures", "OutputTokens"),
    "output-contains": CheckRow("paths", "OutputContains"),
    "output-equals": CheckRow("paths", "OutputEquals"),
    "output-matches": CheckRow("paths", "OutputMatches"),
    "at-path": CheckRow("paths", "AtPath"),
    "at-path-later": CheckRow("paths", "AtPath", is_async=True),
    "no-errors": CheckRow("behavior", "NoErrors"),
    "node-executed": CheckRow("behavior", "NodeExecuted"),
    "node-invocations": CheckRow("behavior", "NodeInvocations"),
    "llm-grader": CheckRow("judged", "LlmGrader", is_async=True),
    "rubrics": CheckRow("judged", "Rubrics", is_async=True),
    "code-grader": CheckRow("program", "CodeGrader", is_async=True),
    "composite": CheckRow("composite", "Composite", is_async=True),
    "tool-trajectory": CheckRow("trajectory", "ToolTrajectory"),
    "field-accuracy": CheckRow("field_accuracy", "FieldAccuracy"),
    "execution-metrics": CheckRow("execution_metrics", "ExecutionMetrics"),
    "token-maxima": CheckRow("measures", "TokenMaxima"),
    "similar": CheckRow("similar", "Similar", is_async=True),
    "script-score": CheckRow("script_score", "ScriptScore"),
    "unavailable": CheckRow("measures", "Unavailable"),
    "condition": CheckRow("conditions.check", "EvalCondition", is_async=True),
    "custom": CheckRow("plugin", "Custom", is_async=True),
    "python": CheckRow("plugin", "Python", is_async=True),
}

# The names of the checks that have to be awaited.
AWAITED: Final = frozenset(name for name, row in CHECKS.items() if row.is_async)


@cache
def find_check(name: str) -> type[Check]:
    """Return the class of the check, imported; raise `UsageError` if there is none."""
    row = CHECKS.get(name)
    if row is None:
        raise UsageError(f"unknown check '{name}'.{suggest(name, CHECKS)}")
    module = importlib.import_module(f"evalcore.checks.{row.module}")
    check: type[Check] = getattr(module, row.name)
    return check


def load_check(name: str, stored: Mapping[str, Any]) -> Check:
    """Return the check that an assertion names, with the fields that the plan stores of it."""
    return find_check(name).from_stored(stored)

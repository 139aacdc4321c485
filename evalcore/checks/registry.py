"""The table of checks: under which name which function stands."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from evalcore.checks.subject import AsyncCheck, SyncCheck
from evalcore.errors import UsageError
from evalcore.mistakes.wording import suggest


class CheckRow(NamedTuple):
    """Where a check stands; its module is imported when the check is first used."""

    module: str
    function: str
    is_async: bool = False


CHECKS: Mapping[str, CheckRow] = {
    "contains": CheckRow("text", "contains"),
    "contains-any": CheckRow("text", "contains_any"),
    "contains-all": CheckRow("text", "contains_all"),
    "starts-with": CheckRow("text", "starts_with"),
    "ends-with": CheckRow("text", "ends_with"),
    "equals": CheckRow("text", "equals"),
    "word-count": CheckRow("text", "word_count"),
    "regex": CheckRow("regex", "matches"),
    "is-json": CheckRow("structure", "is_json"),
    "contains-json": CheckRow("structure", "contains_json"),
    "equals-json": CheckRow("structure", "equals_json"),
    "levenshtein": CheckRow("similarity", "levenshtein"),
    "bleu": CheckRow("similarity", "bleu"),
    "rouge-n": CheckRow("similarity", "rouge_n"),
    "cost": CheckRow("measures", "cost"),
    "latency": CheckRow("measures", "latency"),
    "tokens": CheckRow("measures", "tokens"),
    "input-tokens": CheckRow("measures", "input_tokens"),
    "output-tokens": CheckRow("measures", "output_tokens"),
    "output-contains": CheckRow("paths", "contains"),
    "output-equals": CheckRow("paths", "equals"),
    "output-matches": CheckRow("paths", "matches"),
    "at-path": CheckRow("paths", "at_path"),
    "at-path-later": CheckRow("paths", "at_path_later", is_async=True),
    "no-errors": CheckRow("behavior", "no_errors"),
    "node-executed": CheckRow("behavior", "node_executed"),
    "node-invocations": CheckRow("behavior", "node_invocations"),
    "llm-grader": CheckRow("judged", "llm_grader", is_async=True),
    "rubrics": CheckRow("judged", "rubrics", is_async=True),
    "code-grader": CheckRow("program", "code_grader", is_async=True),
    "composite": CheckRow("composite", "composite", is_async=True),
    "tool-trajectory": CheckRow("trajectory", "tool_trajectory"),
    "field-accuracy": CheckRow("field_accuracy", "field_accuracy"),
    "execution-metrics": CheckRow("execution_metrics", "execution_metrics"),
    "token-maxima": CheckRow("measures", "token_maxima"),
    "similar": CheckRow("similar", "similar", is_async=True),
    "script-score": CheckRow("script_score", "script_score"),
    "unavailable": CheckRow("measures", "unavailable"),
    "custom": CheckRow("plugin", "custom", is_async=True),
    "python": CheckRow("plugin", "python", is_async=True),
}

# The names of the checks that have to be awaited.
AWAITED = frozenset(name for name, row in CHECKS.items() if row.is_async)


@cache
def find_check(name: str) -> SyncCheck | AsyncCheck:
    """Return the check of that name, imported; raise `UsageError` if there is none."""
    row = CHECKS.get(name)
    if row is None:
        raise UsageError(f"unknown check '{name}'.{suggest(name, CHECKS)}")
    module = importlib.import_module(f"evalcore.checks.{row.module}")
    check: SyncCheck | AsyncCheck = getattr(module, row.function)
    return check

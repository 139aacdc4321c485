"""Warnings of assertions whose bounds leave the output no choice: they always pass or never do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.checks.conditions.base import Condition
from evalcore.checks.registry import find_check
from evalcore.checks.scale import accepted_text
from evalcore.formats.parts.suite_warnings import CaseWarnings
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.wording import path_text
from evalcore.model.assertion import Assertion

# Where the bounds of a check may stand, the first that is written counts.
_BOUND_KEYS: Final = (
    "threshold", "max_total", "budget", "required", "min_score", "value", "aggregator",
)  # fmt: skip


def warn_of_certain_condition(
    condition: Condition, loc: Loc, problems: Problems, warnings: CaseWarnings
) -> None:
    """Warn of the condition of the saved eval at `loc` if its outcome is certain."""
    passes = condition.certain_outcome
    if passes is None:
        return
    at = (*loc, "assertion", "condition")
    path = path_text(at)
    reason = f"'{condition.kind}' can never {'fail' if passes else 'pass'} on any value"
    several = f"{{count}} conditions ({{names}}): {reason}"
    warnings.add(f"{path}: {reason}", at, problems, name=path, several=several)


def warn_of_certain_outcome(
    assertion: Assertion,
    written: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
    warnings: CaseWarnings | None,
) -> None:
    """Warn of an assertion at `loc` that can never pass, or never fail, by its bounds alone."""
    check = find_check(assertion.check)
    scale = check.measure_scale
    if warnings is None or scale is None:
        return
    accepted = check.accepted(assertion.params)
    passes = scale.certain(accepted)
    if passes is None or accepted is None:
        return
    passes ^= assertion.negate
    key = next((key for key in _BOUND_KEYS if written.get(key) is not None), None)
    at = loc if key is None else (*loc, key)
    reason = (
        f"'{assertion.type}' can never {'fail' if passes else 'pass'}: {scale.measure} is "
        f"{scale.range_text}, and {accepted_text(accepted)} "
        f"{'fails' if assertion.negate else 'passes'}; write {scale.remedy}"
    )
    path = path_text(at)
    several = f"{{count}} assertions ({{names}}): {reason}"
    warnings.add(f"{path}: {reason}", at, problems, name=path, several=several)

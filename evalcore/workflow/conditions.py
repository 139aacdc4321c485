"""Conditions on a block's output: the operators of `routes`, `output_conditions` and loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from evalcore.patterns import PatternError, compile_pattern
from evalcore.wording import suggest
from evalcore.workflow.definition import BlockCondition, ConditionGroup, Loc, WorkflowMistake
from evalcore.workflow.events import BlockError
from evalcore.workflow.values import MISSING, text_of

_SEARCH_LIMIT_S: Final = 2.0


Look = Callable[[str | None], Any]
"""Returns what stands at an `eval_key`, `MISSING` if nothing does."""


def holds(group: ConditionGroup, look: Look) -> bool:
    """Whether the group holds; raise `BlockError` for an invalid pattern."""
    outcomes = (condition_holds(condition, look) for condition in group.conditions)
    return any(outcomes) if group.combinator == "or" and group.conditions else all(outcomes)


def condition_holds(condition: BlockCondition, look: Look) -> bool:
    """Whether the comparison holds.

    Texts are compared with the JSON text of what is no text; numbers by value, also where one of
    them is written as text. What is missing or null equals, contains and matches nothing; it is no
    number, so `neq` does not hold either.
    """
    actual = look(condition.eval_key)
    operator = condition.operator
    if operator in {"exists", "not_exists"}:
        return (actual is not MISSING) is (operator == "exists")
    if actual is MISSING:
        # The key of a condition on an output that is plain text names the whole of it.
        whole = look(None)
        actual = None if isinstance(whole, Mapping | list) else whole
    return _OPERATORS[operator](actual, condition.value)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, or their texts are; true is not 1, but equals `True`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return text_of(left).lower() == text_of(right).lower()
    return bool(left == right) or text_of(left) == text_of(right)


def _equals(actual: Any, value: Any) -> bool:
    return value is None if actual is None else same(actual, value)


def _contains(actual: Any, value: Any) -> bool:
    if actual is None:
        return False
    if isinstance(actual, list) and any(same(member, value) for member in actual):
        return True
    return text_of(value) in text_of(actual)


def _empty(actual: Any, _: Any) -> bool:
    return actual is None or (isinstance(actual, str | list | Mapping) and not actual)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _eq(actual: Any, value: Any) -> bool:
    left, right = _number(actual), _number(value)
    return _equals(actual, value) if left is None or right is None else left == right


def _neq(actual: Any, value: Any) -> bool:
    return actual is not None and not _eq(actual, value)


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    def check(actual: Any, value: Any) -> bool:
        left, right = _number(actual), _number(value)
        return left is not None and right is not None and compare(left, right)

    return check


def search(pattern: str, text: str) -> bool:
    """Whether a pattern of Python's `re` matches somewhere.

    Raises `BlockError` if it is not one, or if the search takes longer than 2 s.
    """
    try:
        return compile_pattern(pattern).is_found_in(text, _SEARCH_LIMIT_S)
    except PatternError as error:
        raise BlockError("condition", str(error)) from error


def _prefixed(actual: Any, value: Any) -> bool:
    return actual is not None and text_of(actual).startswith(text_of(value))


def _suffixed(actual: Any, value: Any) -> bool:
    return actual is not None and text_of(actual).endswith(text_of(value))


def _matches(actual: Any, value: Any) -> bool:
    return actual is not None and search(text_of(value), text_of(actual))


def _not(check: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda actual, value: not check(actual, value)


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        "equals": _equals,
        "not_equals": _not(_equals),
        "contains": _contains,
        "not_contains": _not(_contains),
        "starts_with": _prefixed,
        "ends_with": _suffixed,
        "is_empty": _empty,
        "not_empty": _not(_empty),
        "regex": _matches,
        "eq": _eq,
        "neq": _neq,
        "gt": _ordered(lambda left, right: left > right),
        "lt": _ordered(lambda left, right: left < right),
        "gte": _ordered(lambda left, right: left >= right),
        "lte": _ordered(lambda left, right: left <= right),
    }
)
OPERATORS: Final = (*_OPERATORS, "exists", "not_exists")
# Of these the second operand is left out.
UNARY: Final = frozenset({"is_empty", "not_empty", "exists", "not_exists"})


def condition_mistakes(
    written: ConditionGroup | BlockCondition | None, loc: Loc
) -> Iterator[WorkflowMistake]:
    """Yield what is wrong with the operators and patterns of conditions."""
    if isinstance(written, ConditionGroup):
        for number, condition in enumerate(written.conditions):
            yield from condition_mistakes(condition, (*loc, "conditions", number))
    elif written is not None:
        has_value = "value" in written.model_fields_set
        yield from operator_mistakes(written.operator, written.value, loc, has_value=has_value)


def operator_mistakes(
    operator: str, value: object, loc: Loc, *, has_value: bool
) -> Iterator[WorkflowMistake]:
    """Yield what is wrong with one comparison at `loc`."""
    if operator not in OPERATORS:
        message = f"unknown operator '{operator}'.{suggest(operator, OPERATORS)}"
        yield WorkflowMistake((*loc, "operator"), message)
    elif operator not in UNARY and not has_value:
        yield WorkflowMistake(loc, f"the operator '{operator}' needs a 'value'")
    elif operator == "regex":
        yield from pattern_mistakes(value, (*loc, "value"))


def pattern_mistakes(pattern: object, loc: Loc) -> Iterator[WorkflowMistake]:
    """Yield a mistake if a text is no pattern of Python's `re`."""
    try:
        re.compile(str(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        yield WorkflowMistake(loc, f"invalid pattern: {error}")

"""`when` of an edge between nodes: the conditions of workflow files, and those of open-harness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from evalcore.mistakes.wording import suggest
from evalcore.targets.flow_answer import AnswerError
from evalcore.workflow.conditions import OPERATORS, Look, condition_holds
from evalcore.workflow.definition import BlockCondition

When = Callable[[Look], bool]
"""Whether the condition holds for what stands at its paths."""

_COMBINED: Final = ("and", "or")


def read_when(raw: Any, where: str) -> When:
    """Return a condition; raise `AnswerError` if it is none.

    `{eval_key, operator, value}`, a list of those (all hold), `{combinator, conditions}`; or
    `{equals: {var, value}}` with any operator, `{and: […]}`, `{or: […]}`, `{not: …}`.
    """
    if isinstance(raw, list | tuple):
        return _all([read_when(each, f"{where}[{n}]") for n, each in enumerate(raw)])
    if not isinstance(raw, Mapping) or not raw:
        raise AnswerError(f"{where}: {_FORMS}")
    named = {"eval_key" if key == "evalKey" else str(key): value for key, value in raw.items()}
    if "operator" in named:
        return _comparison(named, where)
    if "conditions" in named:
        return _group(named, where)
    if len(named) != 1:
        raise AnswerError(f"{where}: {_FORMS}; it has {', '.join(named)}")
    ((word, inner),) = named.items()
    if word == "not":
        condition = read_when(inner, f"{where}.not")
        return lambda look: not condition(look)
    if word in _COMBINED:
        return _group({"combinator": word, "conditions": inner}, where)
    if word in OPERATORS and isinstance(inner, Mapping) and set(inner) <= {"var", "value"}:
        comparison = {"eval_key": inner.get("var"), "operator": word, "value": inner.get("value")}
        return _comparison(comparison, where)
    raise AnswerError(f"{where}: {_FORMS}; unknown: '{word}'")


_FORMS: Final = (
    "a condition is {eval_key, operator, value}, {combinator, conditions}, {equals: {var, value}}, "
    "{and: […]}, {or: […]} or {not: …}"
)


def _comparison(raw: Mapping[str, Any], where: str) -> When:
    unknown = sorted(set(raw) - {"eval_key", "operator", "value"})
    if unknown:
        raise AnswerError(f"{where}: unknown key '{unknown[0]}'; {_FORMS}")
    condition = BlockCondition.model_construct(**raw)
    if condition.operator not in OPERATORS:
        hint = suggest(condition.operator, OPERATORS)
        raise AnswerError(f"{where}: unknown operator '{condition.operator}'.{hint}")
    if condition.eval_key is not None and not isinstance(condition.eval_key, str):
        raise AnswerError(f"{where}: a path is a text, not {condition.eval_key!r}")
    return lambda look: condition_holds(condition, look)


def _group(raw: Mapping[str, Any], where: str) -> When:
    unknown = sorted(set(raw) - {"combinator", "conditions"})
    combinator, written = raw.get("combinator") or "and", raw["conditions"]
    if unknown or combinator not in _COMBINED or not isinstance(written, list | tuple):
        raise AnswerError(f"{where}: {_FORMS}")
    conditions = [read_when(each, f"{where}[{n}]") for n, each in enumerate(written)]
    if combinator == "and" or not conditions:
        return _all(conditions)
    return lambda look: any(condition(look) for condition in conditions)


def _all(conditions: list[When]) -> When:
    return lambda look: all(condition(look) for condition in conditions)

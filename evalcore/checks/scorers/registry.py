"""The table of scorers, and how one is written in a suite."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from evalcore.checks.scorers.scorer import Scorer
from evalcore.declared.parameters import (
    ParameterError,
    choices_of,
    documented,
    documented_parameters,
    parameters_of,
    read_parameters,
    restore,
    snake_case,
)
from evalcore.mistakes.wording import suggest
from evalcore.model.suite import ScorerSpec

SCORERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cost": "measured:CostScorer",
        "custom": "custom:CustomScorer",
        "latency": "measured:LatencyScorer",
        "llm_judge": "judged:LlmJudgeScorer",
        "similarity": "similarity:SimilarityScorer",
        "tokens": "measured:TokensScorer",
    }
)
_MISSING: Final = "a scorer is a name or a mapping with 'scorer' or 'callable'"


class ScorerSyntaxError(ValueError):
    """A scorer is written wrongly; the message says what would work."""


def scorer_class(kind: str) -> type[Scorer]:
    """Return the class of a kind of scorer."""
    module, _, name = SCORERS[kind].partition(":")
    scorer: type[Scorer] = getattr(import_module(f"evalcore.checks.scorers.{module}"), name)
    return scorer


def parse_scorer(raw: object) -> ScorerSpec:
    """Return the scorer that `raw` writes. Raises `ScorerSyntaxError`.

    That is a kind (`latency`), a similarity's mode (`levenshtein`), a mapping `{scorer: kind, name,
    parameter: value, …}` or `{callable: 'module:function', name}`. Keys may be in camelCase.
    """
    if isinstance(raw, str):
        raw = {"callable": raw} if ":" in raw else {"scorer": raw}
    if not isinstance(raw, Mapping):
        raise ScorerSyntaxError(_MISSING)
    written = {snake_case(str(key)).replace("-", "_"): value for key, value in raw.items()}
    kind = _take_kind(written)
    parameters = scorer_class(kind)
    # Null is a parameter that is left out; a function has to be there.
    values = {
        key: value
        for key, value in written.items()
        if value is not None or key == "callable" or key not in parameters_of(parameters)
    }
    try:
        return read_parameters(parameters, values, f"scorer '{kind}'").spec
    except ParameterError as error:
        raise ScorerSyntaxError(str(error)) from None


@lru_cache(maxsize=256)
def restore_scorer(spec: ScorerSpec) -> Scorer:
    """Return a scorer of a suite or of a stored plan."""
    params = {**spec.params, "name": spec.name} if spec.named else spec.params
    return restore(scorer_class(spec.kind), params)


def is_awaited(spec: ScorerSpec) -> bool:
    """Whether a scorer has to be awaited."""
    return restore_scorer(spec).is_awaited


def _take_kind(written: dict[str, Any]) -> str:
    """Take the kind out of the keys; raise `ScorerSyntaxError` if there is none."""
    keys = [key for key in ("scorer", "type") if key in written]
    if len(keys) > 1:
        raise ScorerSyntaxError("'scorer' and 'type' mean the same; keep one of them")
    if "callable" in written:
        if keys and written.pop(keys[0]) != "custom":
            raise ScorerSyntaxError("'callable' is a scorer of its own; remove 'scorer'")
        return "custom"
    if not keys:
        raise ScorerSyntaxError(_MISSING)
    value = written.pop(keys[0])
    kind = snake_case(value).replace("-", "_") if isinstance(value, str) else str(value)
    if kind in SCORERS:
        return kind
    modes = choices_of(parameters_of(scorer_class("similarity"))["mode"])
    if kind in modes and "mode" not in written:
        written["mode"] = kind
        return "similarity"
    raise ScorerSyntaxError(f"unknown scorer {value!r}.{suggest(kind, [*SCORERS, *modes])}")


def scorers_table() -> str:
    """Return the table of scorers in docs/reference/suites.md."""
    kinds = {name: scorer_class(name) for name in SCORERS}
    rows = [
        f"| `{name}` | {documented_parameters(kind, ('name', 'behaviour'))} | {documented(kind)} |"
        for name, kind in kinds.items()
    ]
    return "\n".join(["| scorer | parameters | measures |", "|---|---|---|", *rows])

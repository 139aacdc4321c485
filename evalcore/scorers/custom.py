"""Scorers that are somebody else's Python."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from evalcore.errors import EvalError
from evalcore.model.artifact import Artifact
from evalcore.model.suite import ScorerSpec
from evalcore.scorers.score import Score
from evalcore.trust.foreign_calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.local_objects import find_callable

TIMEOUT_S = 30.0


async def custom(
    spec: ScorerSpec, artifact: Artifact, imports: ImportPolicy, objects: Mapping[str, Any]
) -> Score:
    """Ask an object's `score(artifact)`, or a function, for a `Score`, a number or `{value, raw}`.

    Anything else, an exception and a time-out are an error of this score; so is a value that is
    not in [0, 1]. A bool is 1 or 0, None is not measured.
    """
    try:
        scorer = find_callable(spec.params["callable"], imports, objects)
        answer = await asyncio.wait_for(call_foreign(_function(scorer), artifact), TIMEOUT_S)
    except EvalError as error:
        return Score(spec.name, None, error=str(error))
    except ForeignError as error:
        return Score(spec.name, None, error=str(error))
    except TimeoutError:
        return Score(spec.name, None, error=f"no score within {TIMEOUT_S:g} s")
    return _checked(spec.name, answer)


def _function(scorer: Any) -> Callable[..., Any]:
    if inspect.isclass(scorer):
        made: Any = scorer
        return lambda artifact: made().score(artifact)
    method: Callable[..., Any] | None = getattr(scorer, "score", None)
    found: Callable[..., Any] = method if callable(method) else scorer
    return found


def _checked(name: str, answer: Any) -> Score:
    value, raw = answer, None
    if isinstance(answer, Mapping):
        value, raw = answer.get("value"), answer.get("raw_value", answer.get("raw"))
    elif not isinstance(answer, int | float) and hasattr(answer, "value"):
        value, raw = answer.value, getattr(answer, "raw_value", None)
        error = getattr(answer, "error", None)
        if value is None and error is not None:
            return Score(name, None, error=str(error))
    if value is None:
        return Score(name, None, _number(raw))
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        return Score(name, None, error=f"a score is a number in [0, 1], not {value!r}")
    return Score(name, number, number if raw is None else _number(raw))


def _number(value: Any) -> float | None:
    if not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None

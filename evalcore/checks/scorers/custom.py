"""Scorers that are somebody else's Python."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evalcore.checks.scorers.score import Score, json_raw
from evalcore.errors import EvalError
from evalcore.isolation.mode import NO_WORKERS, Workers
from evalcore.model.artifact import Artifact
from evalcore.model.suite import ScorerSpec
from evalcore.trust.foreign_calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.local_objects import find_callable

if TYPE_CHECKING:
    from evalcore.isolation.worker_program import Engine

TIMEOUT_S = 30.0
_ENTRY = "evalcore.checks.scorers.custom:score_in_worker"
_METHOD = "score"
_RAW_KEYS = ("raw_value", "rawValue", "raw")
_VALUE_KEYS = "{value, raw_value}"


@dataclass(frozen=True, slots=True)
class ScorerCall:
    """One call of a scorer: which, on what, and where it may be imported from."""

    spec: ScorerSpec
    artifact: Artifact
    imports: ImportPolicy


async def custom(
    spec: ScorerSpec,
    artifact: Artifact,
    imports: ImportPolicy,
    objects: Mapping[str, Any],
    workers: Workers = NO_WORKERS,
) -> Score:
    """Ask an object's `score(artifact)`, or a function, for a score.

    That is a `Score`, a number in [0, 1], a bool, a mapping `{value, raw_value}`, or None where
    nothing is measured; it may have a `name`. The score has the name that the suite gives, else the
    object's own, else the answer's. Anything else, an exception and a time-out are an error of this
    score.
    """
    reference = spec.params["callable"]
    pool = None if reference in objects else workers.of(None)
    try:
        if pool is not None:
            from evalcore.isolation.worker_pool import Job

            job = Job(_ENTRY, ScorerCall(spec, artifact, imports))
            return Score(*await pool.call_within(job, TIMEOUT_S))
        scorer = find_callable(reference, imports, objects, _METHOD)
        return await asyncio.wait_for(_asked(spec, artifact, scorer), TIMEOUT_S)
    except EvalError as error:
        return Score(spec.name, None, error=str(error))
    except TimeoutError:
        return Score(spec.name, None, error=f"no score within {TIMEOUT_S:g} s")


async def score_in_worker(call: ScorerCall, engine: Engine) -> list[Any]:
    """Return the fields of the score as JSON values: what a worker process runs."""
    try:
        scorer = call.imports.load(call.spec.params["callable"], _METHOD)
    except EvalError as error:
        return list(Score(call.spec.name, None, error=str(error)))
    engine.loaded()
    return list(await _asked(call.spec, call.artifact, scorer))


async def _asked(spec: ScorerSpec, artifact: Artifact, scorer: Any) -> Score:
    """Return what a scorer answers."""
    name = spec.name
    try:
        function = _function(scorer)
        name = name if spec.named else _own_name(scorer) or name
        answer = await call_foreign(function, artifact)
        if not spec.named and name == spec.name:
            name = _own_name(answer) or name
        return _score(name, answer)
    except (EvalError, ForeignError, ValueError) as error:
        return Score(name, None, error=str(error))


def _function(scorer: Any) -> Callable[..., Any]:
    if inspect.isclass(scorer):
        made: Any = scorer
        return lambda artifact: made().score(artifact)
    method: Callable[..., Any] | None = getattr(scorer, _METHOD, None)
    found: Callable[..., Any] = method if callable(method) else scorer
    return found


def _own_name(thing: Any) -> str | None:
    """Return the `name` of a scorer or of its answer, if that is a text."""
    name = thing.get("name") if isinstance(thing, Mapping) else getattr(thing, "name", None)
    return name if isinstance(name, str) and name else None


def _score(name: str, answer: Any) -> Score:
    """Return the score that an answer is; raise `ValueError` if it is none."""
    value, raw, error = _parts(answer)
    if error is not None and value is None:
        return Score(name, None, json_raw(raw), str(error))
    if value is None:
        return Score(name, None, json_raw(raw))
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"a score is a number in [0, 1], not {repr(value)[:80]}")
    return Score(name, float(value), float(value) if raw is None else json_raw(raw))


def _parts(answer: Any) -> tuple[Any, Any, Any]:
    """Return the value, the raw value and the error of an answer."""
    if isinstance(answer, Mapping):
        if "value" not in answer and answer.get("error") is None:
            keys = ", ".join(map(repr, answer)) or "nothing"
            raise ValueError(f"a score is {_VALUE_KEYS}; 'value' is missing, there is {keys}")
        raws = [answer[key] for key in _RAW_KEYS if answer.get(key) is not None]
        return answer.get("value"), raws[0] if raws else None, answer.get("error")
    if not isinstance(answer, int | float) and hasattr(answer, "value"):
        raws = [one for key in _RAW_KEYS if (one := getattr(answer, key, None)) is not None]
        return answer.value, raws[0] if raws else None, getattr(answer, "error", None)
    return answer, None, None

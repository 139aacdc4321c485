"""The scorer that is the user's Python."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from evalcore.checks.scorers.score import Score, json_raw
from evalcore.checks.scorers.scorer import Scorer, ScorerResources
from evalcore.declared.parameter_types import FUNCTION, MaybeText
from evalcore.declared.parameters import REQUIRED, Key
from evalcore.errors import EvalError
from evalcore.model.artifact import Artifact, artifact_of
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.trust.calls import ForeignError, call_foreign
from evalcore.trust.imports import ImportPolicy
from evalcore.trust.local_objects import find_callable

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine

TIMEOUT_S = 30.0
_ENTRY = "evalcore.checks.scorers.custom:score_in_worker"
_METHOD = "score"
_RAW_KEYS = ("raw_value", "rawValue", "raw")
_VALUE_KEYS = "{value, raw_value}"


@dataclass(frozen=True)
class CustomScorer(Scorer):
    """Your `fn(artifact)`, or an object or class with `score(artifact)`, returns a number, a bool,
    `Score(name, value, raw_value)`, `{value, raw_value}` (`rawValue` too), or None where nothing is
    measured. The raw value is any JSON value up to 64 KiB. Written `{callable: 'module:function'}`.

    The score has the name that the suite gives, else the object's own, else the answer's. Any other
    answer, an exception and a time-out are an error of this score.
    """

    reference: Annotated[str, FUNCTION, Key("callable")] = REQUIRED
    behaviour: MaybeText = None

    @property
    def default_name(self) -> str:
        """The function's name."""
        return self.reference.rpartition(":")[2]

    @cached_property
    def is_awaited(self) -> bool:
        """The function has a time limit, and may run in a worker process."""
        return True

    async def ask(self, evidence: Evidence, case: Case, resources: ScorerResources) -> Score:
        """Call the function with the artifact."""
        artifact = artifact_of(
            evidence,
            case_id=case.id,
            case_input=case.input,
            expected_output=case.expected_output,
        )
        imports, objects = resources.imports, resources.objects
        pool = None if self.reference in objects else resources.workers.of(None)
        try:
            if pool is not None:
                from evalcore.isolation.pool import Job

                job = Job(_ENTRY, ScorerCall(self, artifact, imports))
                return Score(*await pool.call_within(job, TIMEOUT_S))
            function = find_callable(self.reference, imports, objects, _METHOD)
            return await asyncio.wait_for(self.call(artifact, function), TIMEOUT_S)
        except EvalError as error:
            return self.fails(error)
        except TimeoutError:
            return self.fails(f"no score within {TIMEOUT_S:g} s")

    async def call(self, artifact: Artifact, scorer: Any) -> Score:
        """Return the score that a function or an object answers."""
        name = self.label
        try:
            function = _function(scorer)
            name = self.name or _own_name(scorer) or name
            answer = await call_foreign(function, artifact)
            if self.name is None and name == self.label:
                name = _own_name(answer) or name
            return _score(name, answer)
        except (EvalError, ForeignError, ValueError) as error:
            return Score(name, None, error=str(error))


@dataclass(frozen=True, slots=True)
class ScorerCall:
    """One call of a scorer: which, on what, and where it may be imported from."""

    scorer: CustomScorer
    artifact: Artifact
    imports: ImportPolicy


async def score_in_worker(call: ScorerCall, engine: Engine) -> list[Any]:
    """Return the fields of the score as JSON values: what a worker process runs."""
    try:
        function = call.imports.load(call.scorer.reference, _METHOD)
    except EvalError as error:
        return list(call.scorer.fails(error))
    engine.loaded()
    return list(await call.scorer.call(call.artifact, function))


def _function(scorer: Any) -> Callable[..., Any]:
    if inspect.isclass(scorer):
        constructor: Any = scorer
        return lambda artifact: constructor().score(artifact)
    method: Callable[..., Any] | None = getattr(scorer, _METHOD, None)
    function: Callable[..., Any] = method if callable(method) else scorer
    return function


def _own_name(scored: Any) -> str | None:
    """Return the `name` of a scorer or of its answer, if that is a text."""
    name = scored.get("name") if isinstance(scored, Mapping) else getattr(scored, "name", None)
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
        raws = [raw for key in _RAW_KEYS if (raw := getattr(answer, key, None)) is not None]
        return answer.value, raws[0] if raws else None, getattr(answer, "error", None)
    return answer, None, None

"""Scorers: a number from 0 to 1 for each item."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    dataclass_transform,
)

import orjson
from pydantic import AfterValidator, Field

from evalcore.errors import EvalError
from evalcore.jsonvalues import plain_value
from evalcore.judging.asking import JudgeSpec, cosine
from evalcore.judging.panel import DEFAULT_PROMPT, Panel, grade_freely
from evalcore.judging.prompts import conversation_text, escape_variables, expected_text
from evalcore.model.evidence import (
    PRIMARY_PATH,
    Artifact,
    Evidence,
    MissingPath,
    find_value,
    parse_path,
)
from evalcore.model.suite import Case, ScorerSpec, artifact_of
from evalcore.shapes import (
    FUNCTION,
    OrAbsent,
    ParameterError,
    Text,
    Weight,
    choices_of,
    parameter_values,
    parameters_of,
    read_declared,
    restore,
    snake_case,
)
from evalcore.trust.imports import ForeignError, ImportPolicy, call_foreign, find_callable
from evalcore.wording import suggest

if TYPE_CHECKING:
    from evalcore.checks.base import CheckContext
    from evalcore.isolation.worker import Engine


LARGEST_RAW_BYTES: Final = 64 * 1024


class Score(NamedTuple):
    """One measurement. `value` is in [0, 1], higher is better; None where nothing was measured.

    `raw_value` is the measured quantity itself, a JSON value. `error` says why there is no value.
    """

    name: str
    value: float | None
    raw_value: Any = None
    error: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the fields of a result row's `scores`."""
        row: dict[str, Any] = {"name": self.name, "value": self.value, "raw": self.raw_value}
        if self.error is not None:
            row["error"] = self.error
        return row


def json_raw(raw: Any) -> Any:
    """Return a raw value as the JSON value that a row holds; of a dataclass its fields.

    Raises `ValueError` for what JSON does not have (NaN, an object, an integer of more than 64
    bits) and for more than 64 KiB.
    """
    try:
        value = json.loads(json.dumps(plain_value(raw), allow_nan=False))
        size = len(orjson.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"the raw value is no JSON value: {reason}") from error
    if size > LARGEST_RAW_BYTES:
        raise ValueError(f"the raw value has {size} bytes as JSON, at most {LARGEST_RAW_BYTES}")
    return value


def stored_raw(raw: Any) -> Any:
    """Return the raw value of a row: JSON text, or a number in rows of older versions."""
    return orjson.loads(raw) if isinstance(raw, str) else raw


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Scorer:
    """A measurement of an item in [0, 1]; the fields of a subclass are its parameters.

    `kind` is the class's name in snake_case, without `Scorer`.
    """

    kind: ClassVar[str]
    name: OrAbsent[Text] = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        name = cls.__name__.removesuffix("Scorer")
        cls.kind = snake_case(name[0].lower() + name[1:])
        dataclass(frozen=True)(cls)

    @property
    def default_name(self) -> str:
        """The name where the suite gives none."""
        return self.kind

    @cached_property
    def label(self) -> str:
        """The name of the score."""
        return self.name or self.default_name

    @property
    def is_awaited(self) -> bool:
        """Whether `ask` gives the score, and not `score`."""
        return type(self).score is Scorer.score

    @property
    def spec(self) -> ScorerSpec:
        """The form in which a suite and a stored plan hold the scorer."""
        params = parameter_values(self)
        named = params.pop("name") is not None
        return ScorerSpec(self.label, self.kind, params, named)

    def score(self, evidence: Evidence, case: Case) -> Score:
        """Return the score; may raise for values of a foreign shape."""
        raise NotImplementedError

    async def ask(self, evidence: Evidence, case: Case, context: CheckContext) -> Score:
        """Return the score of a scorer that is awaited; never raises."""
        raise NotImplementedError

    def fails(self, error: object) -> Score:
        """Return the score without a value, and why."""
        return Score(self.label, None, error=str(error))


class MeasuredScorer(Scorer):
    """A scorer of an amount: 1 up to `ideal`, 0 from `max` on, a straight line between."""

    metric: ClassVar[str]

    ideal: Weight = 0
    maximum: Annotated[Weight, Field(alias="max")] = 1

    def __post_init__(self) -> None:
        if self.maximum <= self.ideal:
            raise ValueError("'max' has to be more than 'ideal'")

    def amount(self, evidence: Evidence) -> float | None:
        """Return the amount; None where it is not measured."""
        amount: float | None = getattr(evidence.metrics, self.metric)
        return amount

    def score(self, evidence: Evidence, case: Case) -> Score:  # noqa: ARG002 - a scorer's form
        """Return the place of the amount between the bounds."""
        amount = self.amount(evidence)
        if amount is None:
            return Score(self.label, None)
        share = 1.0 - (amount - self.ideal) / (self.maximum - self.ideal)
        return Score(self.label, min(1.0, max(0.0, share)), amount)


class LatencyScorer(MeasuredScorer):
    """The latency in milliseconds."""

    maximum: Annotated[Weight, Field(alias="max")] = 30_000

    metric: ClassVar[str] = "latency_ms"


class CostScorer(MeasuredScorer):
    """The cost in US dollars."""

    metric: ClassVar[str] = "cost_usd"


class TokensScorer(MeasuredScorer):
    """Input tokens · `input_weight` + output tokens · `output_weight`."""

    maximum: Annotated[Weight, Field(alias="max")] = 100_000
    input_weight: Weight = 1
    output_weight: Weight = 1

    def amount(self, evidence: Evidence) -> float | None:
        """Return the weighted sum; None if a count that has a weight is not measured."""
        metrics = evidence.metrics
        amount = 0.0
        for count, weight in (
            (metrics.input_tokens, self.input_weight),
            (metrics.output_tokens, self.output_weight),
        ):
            if not weight:
                continue
            if count is None:
                return None
            amount += count * weight
        return amount


class LlmJudgeScorer(Scorer):
    """The score that a [judge](graders.md) gives by `criteria`, else by the case's."""

    criteria: OrAbsent[Text] = None
    judge: OrAbsent[Text] = None
    model: OrAbsent[Text] = None

    async def ask(self, evidence: Evidence, case: Case, context: CheckContext) -> Score:
        """Return the judge's score; no value where no judge gives one."""
        prompt = None
        if self.criteria is not None:
            prompt = f"{DEFAULT_PROMPT}\n\nCriteria:\n{escape_variables(self.criteria)}"
        if evidence.output is None:
            return self.fails("there is no output")
        material = {
            "input": conversation_text(case.input),
            "output": evidence.output,
            "expected_output": expected_text(case.expected_output),
            "criteria": case.criteria or "",
        }
        panel = Panel((JudgeSpec(self.judge, self.model),))
        try:
            grade = await grade_freely(context.judges, panel, prompt, material, 0.8)
        except EvalError as error:
            return self.fails(error)
        return Score(self.label, grade.score, grade.score)


def _parsed_path(path: str) -> str:
    parse_path(path)
    return path


class SimilarityScorer(Scorer):
    """How near the value at `path` comes to `expected`, else to the case's `expected_output`; each
    mode is a name of its own (`levenshtein`). `exact` and `contains` are 0 or 1; `levenshtein` is
    1 − distance / length of the longer text; `embedding` is the cosine of the embeddings, and
    `judge` names the target that embeds.

    A value that is no text is compared as its JSON. The raw value of `levenshtein` is the distance.
    """

    mode: Literal["exact", "contains", "levenshtein", "embedding"] = "exact"
    expected: Any = None
    judge: OrAbsent[Text] = None
    model: OrAbsent[Text] = None
    path: OrAbsent[Annotated[Text, AfterValidator(_parsed_path)]] = None

    @property
    def default_name(self) -> str:
        """The mode."""
        return self.mode

    @property
    def is_awaited(self) -> bool:
        """Whether a judge gives embeddings."""
        return self.mode == "embedding"

    def score(self, evidence: Evidence, case: Case) -> Score:
        """Return the similarity of the texts."""
        texts = self._texts(evidence, case)
        if isinstance(texts, Score):
            return texts
        actual, expected = texts
        if self.mode == "levenshtein":
            from rapidfuzz.distance import Levenshtein

            value = Levenshtein.normalized_similarity(actual, expected)
            return Score(self.label, value, float(Levenshtein.distance(actual, expected)))
        value = float(actual == expected if self.mode == "exact" else expected in actual)
        return Score(self.label, value, value)

    async def ask(self, evidence: Evidence, case: Case, context: CheckContext) -> Score:
        """Return the cosine of the embeddings, at least 0; the raw value is the cosine."""
        texts = self._texts(evidence, case)
        if isinstance(texts, Score):
            return texts
        embedder = JudgeSpec(self.judge, self.model)
        try:
            embeddings = await context.judges.embed(embedder, list(texts))
            value = cosine(*embeddings.vectors)
        except (EvalError, ValueError) as error:
            return self.fails(error)
        return Score(self.label, min(1.0, max(0.0, value)), value)

    def _texts(self, evidence: Evidence, case: Case) -> tuple[str, str] | Score:
        """Return the actual and the expected text, or the score that says why there is none."""
        expected = case.expected_output if self.expected is None else self.expected
        if expected is None:
            return self.fails("there is nothing to compare with: the case has no 'expected_output'")
        value = find_value(evidence, self.path or PRIMARY_PATH)
        if isinstance(value, MissingPath):
            return self.fails(value)
        return _text(value.value), _text(expected)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


TIMEOUT_S = 30.0
_ENTRY = "evalcore.checks.scorers:score_in_worker"
_METHOD = "score"
_RAW_KEYS = ("raw_value", "rawValue", "raw")
_VALUE_KEYS = "{value, raw_value}"


class CustomScorer(Scorer):
    """Your `fn(artifact)`, or an object or class with `score(artifact)`, returns a number, a bool,
    `Score(name, value, raw_value)`, `{value, raw_value}` (`rawValue` too), or None where nothing is
    measured. The raw value is any JSON value up to 64 KiB. Written `{callable: 'module:function'}`.

    The score has the name that the suite gives, else the object's own, else the answer's. Any other
    answer, an exception and a time-out are an error of this score.
    """

    reference: Annotated[str, FUNCTION, Field(alias="callable")]
    behaviour: OrAbsent[Text] = None

    @property
    def default_name(self) -> str:
        """The function's name."""
        return self.reference.rpartition(":")[2]

    async def ask(self, evidence: Evidence, case: Case, context: CheckContext) -> Score:
        """Call the function with the artifact."""
        artifact = artifact_of(evidence, case)
        imports, objects = context.imports, context.objects
        pool = None if self.reference in objects else context.workers.of(None)
        try:
            if pool is not None:
                from evalcore.isolation.pool import Job

                job = Job(_ENTRY, (self, artifact, imports))
                return Score(*await pool.call(job, timeout_s=TIMEOUT_S))
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
            scored: Any = scorer() if inspect.isclass(scorer) else scorer
            name = self.name or _field(scored, "name") or name
            answer = await call_foreign(getattr(scored, _METHOD, scored), artifact)
            if self.name is None and name == self.label:
                name = _field(answer, "name") or name
            return _score(name, answer)
        except (EvalError, ForeignError, ValueError) as error:
            return Score(name, None, error=str(error))


async def score_in_worker(
    call: tuple[CustomScorer, Artifact, ImportPolicy], engine: Engine
) -> list[Any]:
    """Return the fields of the score as JSON values: what a worker process runs."""
    scorer, artifact, imports = call
    try:
        function = imports.load(scorer.reference, _METHOD)
    except EvalError as error:
        return list(scorer.fails(error))
    engine.loaded()
    return list(await scorer.call(artifact, function))


def _field(answer: Any, name: str) -> Any:
    """Return a field of a scorer or of its answer; a name only if it is a text."""
    value = answer.get(name) if isinstance(answer, Mapping) else getattr(answer, name, None)
    return value if name != "name" or isinstance(value, str) else None


def _score(name: str, answer: Any) -> Score:
    """Return the score that an answer is; raise `ValueError` if it is none."""
    value, error, raw = answer, None, None
    if isinstance(answer, Mapping) and "value" not in answer and answer.get("error") is None:
        keys = ", ".join(map(repr, answer)) or "nothing"
        raise ValueError(f"a score is {_VALUE_KEYS}; 'value' is missing, there is {keys}")
    if isinstance(answer, Mapping) or (
        not isinstance(answer, int | float) and hasattr(answer, "value")
    ):
        value, error = _field(answer, "value"), _field(answer, "error")
        raws = (_field(answer, key) for key in _RAW_KEYS)
        raw = json_raw(next((each for each in raws if each is not None), None))
    if value is None:
        return Score(name, None, raw, None if error is None else str(error))
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"a score is a number in [0, 1], not {repr(value)[:80]}")
    return Score(name, float(value), float(value) if raw is None else raw)


SCORERS: Final[Mapping[str, type[Scorer]]] = MappingProxyType(
    {
        "cost": CostScorer,
        "custom": CustomScorer,
        "latency": LatencyScorer,
        "llm_judge": LlmJudgeScorer,
        "similarity": SimilarityScorer,
        "tokens": TokensScorer,
    }
)
_MISSING: Final = "a scorer is a name or a mapping with 'scorer' or 'callable'"


def parse_scorer(raw: object) -> ScorerSpec:
    """Return the scorer that `raw` writes. Raises `ParameterError`.

    That is a kind (`latency`), a similarity's mode (`levenshtein`), a mapping `{scorer: kind, name,
    parameter: value, …}` or `{callable: 'module:function', name}`. Keys may be in camelCase.
    """
    if isinstance(raw, str):
        raw = {"callable": raw} if ":" in raw else {"scorer": raw}
    if not isinstance(raw, Mapping):
        raise ParameterError(_MISSING)
    written = {snake_case(str(key)).replace("-", "_"): value for key, value in raw.items()}
    kind = _take_kind(written)
    parameters = SCORERS[kind]
    # Null is a parameter that is left out; a function has to be there.
    values = {
        key: value
        for key, value in written.items()
        if value is not None or key == "callable" or key not in parameters_of(parameters)
    }
    return read_declared(parameters, values, f"scorer '{kind}'").spec


@lru_cache(maxsize=256)
def restore_scorer(spec: ScorerSpec) -> Scorer:
    """Return a scorer of a suite or of a stored plan."""
    params = {**spec.params, "name": spec.name} if spec.named else spec.params
    return restore(SCORERS[spec.kind], params)


def is_awaited(spec: ScorerSpec) -> bool:
    """Whether a scorer has to be awaited."""
    return restore_scorer(spec).is_awaited


def _take_kind(written: dict[str, Any]) -> str:
    """Take the kind out of the keys; raise `ParameterError` if there is none."""
    keys = [key for key in ("scorer", "type") if key in written]
    if len(keys) > 1:
        raise ParameterError("'scorer' and 'type' mean the same; keep one of them")
    if "callable" in written:
        if keys and written.pop(keys[0]) != "custom":
            raise ParameterError("'callable' is a scorer of its own; remove 'scorer'")
        return "custom"
    if not keys:
        raise ParameterError(_MISSING)
    value = written.pop(keys[0])
    kind = snake_case(value).replace("-", "_") if isinstance(value, str) else str(value)
    if kind in SCORERS:
        return kind
    modes = choices_of(parameters_of(SCORERS["similarity"])["mode"])
    if kind in modes and "mode" not in written:
        written["mode"] = kind
        return "similarity"
    raise ParameterError(f"unknown scorer {value!r}.{suggest(kind, [*SCORERS, *modes])}")


async def score_evidence(
    specs: Sequence[ScorerSpec],
    evidence: Evidence,
    case: Case,
    context: CheckContext,
) -> list[dict[str, Any]]:
    """Return `{name, value, raw, error?}` for each scorer, in their order; never raises.

    A scorer that fails has value None and the reason as `error`. It suspends only for scorers that
    are awaited, and where the context's `thread` runs what takes long.
    """
    entries = []
    for scorer in map(restore_scorer, specs):
        if scorer.is_awaited:
            score = await scorer.ask(evidence, case, context)
        elif context.thread is None:
            score = _score_of(scorer, evidence, case)
        else:
            call = partial(_score_of, scorer, evidence, case)
            score = await context.thread.result(f"scorer {scorer.kind}", call)
        entries.append(score.row())
    return entries


def _score_of(scorer: Scorer, evidence: Evidence, case: Case) -> Score:
    try:
        return scorer.score(evidence, case)
    except (ValueError, TypeError, RecursionError) as error:  # values of the target
        return scorer.fails(f"{type(error).__name__}: {error}")

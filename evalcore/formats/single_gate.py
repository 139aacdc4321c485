"""One gate and its results as JSON values (`evalcore decide`, docs/reference/command-line.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from evalcore.gates.registry import parse_gate
from evalcore.model.evidence import LARGEST
from evalcore.model.run import GateSpec
from evalcore.model.scoring import reaches
from evalcore.model.suite import ErrorPolicy
from evalcore.model.summary import Tolerances
from evalcore.problems import Problems
from evalcore.shapes import (
    Declared,
    Measure,
    OrAbsent,
    Text,
    Weight,
    adapter,
)

_Count = Annotated[int, Field(ge=0, le=LARGEST)]


class _Open(Declared):
    """What may have keys of its writer: a title, a note, what is expected."""

    model_config = ConfigDict(extra="allow")


def _score(value: float) -> float:
    if not (reaches(value, 0.0) and reaches(1.0, value)):
        raise ValueError(f"must be a number from 0 to 1, got the number {value:g}")
    return value


class _Result(_Open):
    """The result of one case; several of one case are its iterations."""

    case_id: Text
    passed: OrAbsent[bool] = None
    duration_ms: Measure | None = None
    cost_usd: Measure | None = None
    overall: Annotated[float, AfterValidator(_score)] | None = None
    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    tokens: _Count | None = None
    error: Any = None
    errored: bool = False
    blocked: bool = False
    status: OrAbsent[
        Literal["completed", "error", "skipped", "cancelled", "passed", "failed", "blocked"]
    ] = None
    outcome: Literal["passed", "failed", "blocked"] | None = None

    @field_validator("tokens")
    @classmethod
    def _is_sum(cls, total: int | None, info: ValidationInfo) -> int | None:
        counts = (info.data.get("input_tokens"), info.data.get("output_tokens"))
        parts = [part for part in counts if part is not None]
        fits = sum(parts) == total if len(parts) > 1 else sum(parts) <= (total or 0)
        if total is not None and not fits:
            message = f"{total} is not the sum of the tokens of input and output; give one of both"
            raise ValueError(message)
        return total

    @model_validator(mode="after")
    def _is_decided(self) -> Self:
        if self.lifecycle == "completed" and self.verdict is None:
            raise ValueError("has no 'passed'")
        return self

    @property
    def lifecycle(self) -> str:
        """How the item ended."""
        if self.error or self.errored or self.status == "error":
            return "error"
        return self.status if self.status in ("skipped", "cancelled") else "completed"

    @property
    def verdict(self) -> str | None:
        """The outcome of a completed result; None if it does not say."""
        if self.blocked:
            return "blocked"
        if self.status in ("passed", "failed", "blocked"):
            return self.status
        passed = {True: "passed", False: "failed", None: None}[self.passed]
        return self.outcome or passed

    @property
    def token_counts(self) -> tuple[int | None, int | None]:
        """The tokens of input and output; what is left of a given sum is the other's."""
        inputs, outputs, total = self.input_tokens, self.output_tokens, self.tokens
        if total is None or None not in {inputs, outputs}:
            return inputs, outputs
        if inputs is None:
            return total - (outputs or 0), outputs or 0
        return inputs, total - inputs


class _Variant(_Open):
    """A variant's results."""

    variant_id: Text
    cases: list[_Result]


class _Thresholds(_Open):
    """How much worse is tolerated."""

    latency_increase: Weight = Tolerances().latency
    cost_increase: Weight = Tolerances().cost
    tokens_increase: Weight = Tolerances().tokens
    score_decrease: Weight = Tolerances().score


class _Run(_Open):
    """A run of the cases."""

    variants: list[_Variant]
    run: OrAbsent[Text] = None

    @field_validator("variants")
    @classmethod
    def _have_own_names(cls, variants: list[_Variant]) -> list[_Variant]:
        names: set[str] = set()
        for variant in variants:
            if variant.variant_id in names:
                raise ValueError(f"duplicate variant '{variant.variant_id}'")
            names.add(variant.variant_id)
        return variants


class _Question(_Run):
    """A gate and results."""

    gate: Any
    baseline: str | None = None
    thresholds: _Thresholds = Field(default_factory=_Thresholds)
    errors: Literal["fail", "zero", "exclude"] = "fail"
    history: list[_Run] = Field(default_factory=list)


class GivenRun(NamedTuple):
    """Results as rows of a run: `cases` × `variants` × `iterations`, some missing."""

    name: str
    variants: tuple[str, ...]
    cases: int
    iterations: int
    rows: tuple[dict[str, Any], ...]


class GateQuestion(NamedTuple):
    """A gate, and the results that it decides over; `history` are earlier runs, oldest first."""

    gate: GateSpec
    results: GivenRun
    baseline: str | None
    tolerances: Tolerances
    errors: ErrorPolicy = ErrorPolicy.FAIL
    history: tuple[GivenRun, ...] = ()


def read_question(raw: Mapping[str, Any]) -> GateQuestion:
    """Return the question; keys may be in camelCase, unknown ones are left alone.

    Raises `LoadError` with every mistake of the results, or `ParameterError`.
    """
    problems = Problems("question", lambda _: None)
    try:
        question: _Question = adapter(_Question).validate_python(dict(raw))
    except ValidationError as error:
        problems.add_invalid(error, raw, _Question)
        problems.raise_if_any()
        raise
    thresholds = question.thresholds
    return GateQuestion(
        gate=parse_gate(question.gate),
        results=_given_run("", question),
        baseline=question.baseline,
        tolerances=Tolerances(
            latency=thresholds.latency_increase,
            cost=thresholds.cost_increase,
            tokens=thresholds.tokens_increase,
            score=thresholds.score_decrease,
        ),
        errors=ErrorPolicy(question.errors),
        history=tuple(
            _given_run(run.run or f"run {number}", run)
            for number, run in enumerate(question.history, 1)
        ),
    )


def _given_run(name: str, run: _Run) -> GivenRun:
    """Return results as rows of a run, numbered as its plan would."""
    cases = dict.fromkeys(result.case_id for variant in run.variants for result in variant.cases)
    case_indices = {case_id: index for index, case_id in enumerate(cases)}
    counts = [Counter(result.case_id for result in variant.cases) for variant in run.variants]
    iterations = max((number for each in counts for number in each.values()), default=1)
    rows = []
    for number, variant in enumerate(run.variants):
        seen: Counter[str] = Counter()
        for result in variant.cases:
            iteration = seen[result.case_id]
            seen[result.case_id] += 1
            place = case_indices[result.case_id] * len(run.variants) + number
            done = result.lifecycle == "completed"
            inputs, outputs = result.token_counts
            rows.append(
                {
                    "item": place * iterations + iteration,
                    "case_id": result.case_id,
                    "variant": variant.variant_id,
                    "iteration": iteration,
                    "status": result.lifecycle,
                    "outcome": result.verdict if done else None,
                    "score": result.overall if done else None,
                    "latency_ms": result.duration_ms,
                    "cost_usd": result.cost_usd,
                    "input_tokens": inputs,
                    "output_tokens": outputs,
                    "assertions": [],
                }
            )
    names = tuple(variant.variant_id for variant in run.variants)
    return GivenRun(name, names, len(cases), iterations, tuple(rows))

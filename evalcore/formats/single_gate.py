"""One gate and its results as JSON values (`evalcore decide`, docs/reference/command-line.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Required

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.formats.section import OPEN
from evalcore.gates.registry import parse_gate
from evalcore.model.evidence import LARGEST
from evalcore.model.run import GateSpec
from evalcore.model.scoring import reaches
from evalcore.model.suite import ErrorPolicy
from evalcore.model.summary import Tolerances
from evalcore.problems import Problems
from evalcore.shapes import Text, Weight, adapter
from evalcore.wording import Loc, did_you_mean, known_names

_OUTCOMES = frozenset({"passed", "failed", "blocked"})

Amount = Annotated[float, Field(ge=0, le=LARGEST)] | None
Number = Annotated[int, Field(ge=0, le=LARGEST)] | None
Status = Literal["completed", "error", "skipped", "cancelled", "passed", "failed", "blocked"]


@with_config(OPEN)
class _Result(TypedDict, total=False):
    """The result of one case; several of one case are its iterations."""

    case_id: Required[Text]
    passed: bool
    duration_ms: Amount
    cost_usd: Amount
    overall: float | None
    tokens: Number
    input_tokens: Number
    output_tokens: Number
    error: Any
    errored: bool
    blocked: bool
    status: Status
    outcome: Literal["passed", "failed", "blocked"] | None


@with_config(OPEN)
class _Variant(TypedDict):
    """A variant's results."""

    variant_id: Text
    cases: list[_Result]


@with_config(OPEN)
class _Thresholds(TypedDict, total=False):
    """How much worse is tolerated."""

    latency_increase: Weight
    cost_increase: Weight
    tokens_increase: Weight
    score_decrease: Weight


@with_config(OPEN)
class _PastRun(TypedDict):
    """An earlier run of the same cases."""

    variants: list[_Variant]
    run: NotRequired[Text]


@with_config(OPEN)
class _Question(TypedDict):
    """A gate and results."""

    variants: list[_Variant]
    gate: Any
    baseline: NotRequired[str | None]
    thresholds: NotRequired[_Thresholds]
    errors: NotRequired[Literal["fail", "zero", "exclude"]]
    history: NotRequired[list[_PastRun]]


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
    """Return the question; keys may be in camelCase, unknown ones are left alone (`unread_keys`).

    Raises `LoadError` with every mistake of the results, or `GateSyntaxError`.
    """
    value = _snake_keys(dict(raw))
    problems = Problems("question", lambda _: None)
    try:
        question = adapter(_Question).validate_python(value)
    except ValidationError as error:
        problems.add_invalid(error, value, _Question)
    problems.raise_if_any()
    _check_results(question, problems)
    history = question.get("history", [])
    for number, run in enumerate(history):
        _check_results(run, problems, ("history", number))
    problems.raise_if_any()
    gate = parse_gate(question["gate"])
    thresholds = question.get("thresholds", {})
    return GateQuestion(
        gate=gate,
        results=_given_run("", question),
        baseline=question.get("baseline"),
        tolerances=Tolerances(
            latency=thresholds.get("latency_increase", Tolerances().latency),
            cost=thresholds.get("cost_increase", Tolerances().cost),
            tokens=thresholds.get("tokens_increase", Tolerances().tokens),
            score=thresholds.get("score_decrease", Tolerances().score),
        ),
        errors=ErrorPolicy(question.get("errors", ErrorPolicy.FAIL)),
        history=tuple(
            _given_run(run.get("run") or f"run {number}", run)
            for number, run in enumerate(history, 1)
        ),
    )


def unread_keys(raw: Any) -> Iterator[str]:
    """Yield a warning for each key of a result and of the thresholds that nothing reads.

    Keys beside the question are its writer's: a title, a note, what is expected.
    """
    question = _snake_keys(raw)
    if not isinstance(question, dict):
        return
    runs = [question, *_objects(question.get("history"))]
    variants = [variant for run in runs for variant in _objects(run.get("variants"))]
    results = [result for variant in variants for result in _objects(variant.get("cases"))]
    for where, shape, objects in (
        ("a result's", _Result, results),
        ("thresholds'", _Thresholds, _objects([question.get("thresholds")])),
    ):
        names = shape.__annotations__.keys()
        for key in dict.fromkeys(key for each in objects for key in each if key not in names):
            hint = did_you_mean(key, names) or f" {known_names(names)}"
            yield f"{where} '{key}' is not read.{hint}"


def _objects(values: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON list; none of what is no list."""
    members = values if isinstance(values, list) else []
    return [value for value in members if isinstance(value, dict)]


def _given_run(name: str, raw: Any) -> GivenRun:
    case_indices, iterations = _grid(raw)
    return GivenRun(
        name=name,
        variants=tuple(variant["variant_id"] for variant in raw["variants"]),
        cases=len(case_indices),
        iterations=iterations,
        rows=tuple(_rows(raw, case_indices, iterations)),
    )


def _snake_keys(value: Any) -> Any:
    """Return JSON values with keys in snake_case; a gate's own keys are its parser's."""
    if isinstance(value, list):
        return [_snake_keys(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {
        (snake := _snake_key(str(key))): member if snake == "gate" else _snake_keys(member)
        for key, member in value.items()
    }


@lru_cache(maxsize=1024)
def _snake_key(key: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", key).lower()


def _check_results(question: Any, problems: Problems, loc: Loc = ()) -> None:
    names: set[str] = set()
    for number, variant in enumerate(question["variants"]):
        own = (*loc, "variants", number)
        if (name := variant["variant_id"]) in names:
            problems.add((*own, "variant_id"), f"duplicate variant '{name}'")
        names.add(name)
        for index, result in enumerate(variant["cases"]):
            if _status(result) == "completed" and _outcome(result) is None:
                problems.add((*own, "cases", index), "has no 'passed'")
            if (message := _contradicted_tokens(result)) is not None:
                problems.add((*own, "cases", index, "tokens"), message)
            score = result.get("overall")
            if score is not None and not (reaches(score, 0.0) and reaches(1.0, score)):
                message = f"must be a number from 0 to 1, got the number {score:g}"
                problems.add((*own, "cases", index, "overall"), message)


def _grid(question: Any) -> tuple[dict[str, int], int]:
    """Return the place of each case, and how many results of one there are in a variant at most."""
    case_indices: dict[str, int] = {}
    iterations = 1
    for variant in question["variants"]:
        counts: dict[str, int] = {}
        for result in variant["cases"]:
            name = result["case_id"]
            case_indices.setdefault(name, len(case_indices))
            counts[name] = counts.get(name, 0) + 1
        iterations = max(iterations, *counts.values(), 1)
    return case_indices, iterations


def _rows(
    question: Any, case_indices: Mapping[str, int], iterations: int
) -> Iterator[dict[str, Any]]:
    """Yield the results as rows of a run, numbered as its plan would."""
    variants = question["variants"]
    for number, variant in enumerate(variants):
        last_iterations: dict[str, int] = {}
        for result in variant["cases"]:
            name = result["case_id"]
            iteration = last_iterations[name] = last_iterations.get(name, -1) + 1
            item = (case_indices[name] * len(variants) + number) * iterations + iteration
            yield _row(result, item, iteration, variant["variant_id"])


def _row(result: Any, item: int, iteration: int, variant: str) -> dict[str, Any]:
    status = _status(result)
    done = status == "completed"
    inputs, outputs = _tokens(result)
    return {
        "item": item,
        "case_id": result["case_id"],
        "variant": variant,
        "iteration": iteration,
        "status": status,
        "outcome": _outcome(result) if done else None,
        "score": result.get("overall") if done else None,
        "latency_ms": result.get("duration_ms"),
        "cost_usd": result.get("cost_usd"),
        "input_tokens": inputs,
        "output_tokens": outputs,
        "assertions": [],
    }


def _tokens(result: Any) -> tuple[int | None, int | None]:
    """Return the tokens of input and output; what is left of a given sum is the other's."""
    inputs, outputs = result.get("input_tokens"), result.get("output_tokens")
    total = result.get("tokens")
    if total is None or None not in {inputs, outputs}:
        return inputs, outputs
    if inputs is None:
        return total - (outputs or 0), outputs or 0
    return inputs, total - inputs


def _contradicted_tokens(result: Any) -> str | None:
    """Return what is wrong with `tokens` beside those of input and output, if anything is."""
    inputs, outputs = result.get("input_tokens"), result.get("output_tokens")
    total = result.get("tokens")
    parts = [part for part in (inputs, outputs) if part is not None]
    if total is None or not parts or (sum(parts) == total if len(parts) > 1 else parts[0] <= total):
        return None
    return f"{total} is not the sum of the tokens of input and output; give one of both"


def _outcome(result: Any) -> str | None:
    """Return the outcome of a completed result; None if it does not say."""
    if result.get("blocked"):
        return "blocked"
    if result.get("status") in _OUTCOMES:
        return str(result["status"])
    if result.get("outcome") is not None:
        return str(result["outcome"])
    if "passed" not in result:
        return None
    return "passed" if result["passed"] else "failed"


def _status(result: Any) -> str:
    if result.get("error") or result.get("errored") or result.get("status") == "error":
        return "error"
    status = result.get("status")
    return status if status in {"skipped", "cancelled"} else "completed"

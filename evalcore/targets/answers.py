"""Evidence of what answered: a provider's reply, a flow's return value, a case's fixtures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.errors import TargetError
from evalcore.jsonvalues import (
    PathSyntaxError,
    has_infinite,
    json_form,
    plain_value,
    storable,
)
from evalcore.judging.prompts import content_text
from evalcore.model.evidence import (
    NOTHING,
    PRIMARY,
    UNMEASURED,
    Evidence,
    Metrics,
    MissingPath,
    find_value,
    output_values,
    with_values,
    with_warnings,
)
from evalcore.model.exchange import ProviderError, Reply, Request, call_notes
from evalcore.shapes import explain
from evalcore.targets.work import json_text
from evalcore.wording import QUOTED_LENGTH, path_text, shorten
from evalcore.workflow.events import ProviderCall


def evidence_of(reply: Reply, request: Request, output: str | None = None) -> Evidence:
    """Return the evidence of one call: its text (or `output`), its measures, its tool calls."""
    details: dict[str, Any] = {"calls": [call_of(reply, request)]}
    if reply.tool_calls:
        calls = [dict(call) for call in reply.tool_calls]
        message = {"role": "assistant", "content": reply.text, "tool_calls": calls}
        details["messages"] = [message]
    return Evidence(
        output=reply.text if output is None else output,
        metrics=reply.metrics,
        details=details,
    )


def call_of(reply: Reply, request: Request) -> dict[str, Any]:
    """Return a successful call as it stands in `details.calls`; it is no block's."""
    provider, model = request.endpoint.provider, reply.model or request.model
    call = ProviderCall(provider, model, "", reply.metrics, reply.attempts, reply.recorded)
    return {**call.as_json(), "block": None, **call_notes(request, reply)}


def failed_call_of(error: ProviderError, provider: str) -> dict[str, Any]:
    """Return a call that failed for good as it stands in `details.calls`."""
    call = ProviderCall(provider, "", "", UNMEASURED, error.attempts, error=error.message)
    return {**call.as_json(), "model": None, "block": None}


_WHOLE: Final = frozenset(
    {"output", "outputs", "state", "metrics", "errors", "invocations", "primary_output"}
)
_MEASURES: Final = frozenset(field.name for field in fields(Metrics))


_SHAPES: Final = (
    "a workflow {blocks}, nodes {flow: {name, nodes, edges}, register}, {flow, primary_output}, a "
    "target {provider}, or an answer: text, {outputs, state, metrics}, {output}. A mapping with "
    "such keys that is the answer is returned as {'output': …}"
)
# A mapping with one of these may be a definition that nothing runs, or evidence that is misspelt.
_DOCUMENTED: Final = frozenset({"blocks", "flow", "nodes", "output", "outputs", "provider"})


class AnswerError(ValueError):
    """The value cannot be an answer; the message says what can."""


def answer_evidence(value: Any) -> Evidence:
    """Return the evidence of an answer.

    Text is the output. A mapping with `outputs` (and `state`, `metrics`, `errors`, `invocations`,
    `output`), or with `output` beside one of those, is the evidence itself. Any other JSON value is
    the output, kept as it is in the state if it is a mapping. A flow's last
    block is the primary one. Paths find outputs with the type that they had here. Raises
    `AnswerError`.
    """
    if isinstance(value, Evidence):
        return value
    if is_whole_evidence(value):
        return _whole(value)
    if isinstance(value, Mapping):
        return Evidence(text_of(value), details={"state": json_value(dict(value))})
    evidence = Evidence(text_of(value))
    if isinstance(value, str):
        return evidence
    return with_values(evidence, {PRIMARY: json_value(value)})


def returned_evidence(value: Any) -> Evidence:
    """Return the evidence of what a flow returned as its answer.

    As `answer_evidence`, of models and dataclasses with their JSON form; but a mapping with one of
    the keys of definitions and evidence is an answer only as `{output}` (any JSON value) or
    `{outputs, state, …}`: a definition that nothing ran must not pass for one. Halves of surrogate
    pairs are replaced, with a warning. Raises `AnswerError`.
    """
    if isinstance(value, Evidence):
        return value
    plain = plain_value(value)
    if has_infinite(plain):
        return _returned(plain)
    whole, notes = storable(plain)
    return with_warnings(_returned(whole), notes)


def _returned(value: Any) -> Evidence:
    if not isinstance(value, Mapping) or is_whole_evidence(value) or _DOCUMENTED.isdisjoint(value):
        return answer_evidence(value)
    if set(value) == {"output"}:
        output = value["output"]
        evidence = Evidence(text_of(output))
        if isinstance(output, Mapping):
            evidence = evidence._replace(details={"state": json_value(output)})
        values = {} if isinstance(output, str) else {PRIMARY: json_value(output)}
        return with_values(evidence, values)
    keys = shorten(", ".join(f"'{key}'" for key in value), QUOTED_LENGTH)
    raise AnswerError(f"returned a mapping with the keys {keys}; expected one of {_SHAPES}")


def is_whole_evidence(value: Any) -> bool:
    """Whether a mapping says what the outputs, state and measures of an execution are."""
    if not isinstance(value, Mapping) or not set(value) <= _WHOLE:
        return False
    return isinstance(value.get("outputs"), Mapping) or ("output" in value and len(value) > 1)


def block_evidence(blocks: Mapping[str, Any]) -> Evidence:
    """Return the evidence of outputs by block: each text, `{output, metrics}`, or any value.

    The last block is the primary one. Raises `AnswerError`.
    """
    outputs: dict[str, str] = {}
    state: dict[str, Any] = {}
    measured: dict[str, Metrics] = {}
    for block, raw in blocks.items():
        value = raw
        if isinstance(raw, Mapping) and "output" in raw and set(raw) <= {"output", "metrics"}:
            value = raw["output"]
            if raw.get("metrics"):
                measured[block] = _metrics(raw["metrics"])
        outputs[block] = text_of(value)
        state[block] = json_value(value)
    evidence = Evidence(
        output=next(reversed(outputs.values()), None),
        outputs=outputs,
        metrics=sum_metrics(measured),
        block_metrics=measured or NOTHING,
        details={"state": state},
    )
    if state:
        evidence = with_values(evidence, state | {PRIMARY: next(reversed(state.values()))})
    return evidence


def with_primary(evidence: Evidence, primary_output: str) -> Evidence:
    """Return the evidence with another primary output; raise `AnswerError` if there is none."""
    try:
        primary = find_value(evidence, f"outputs.{primary_output}")
    except PathSyntaxError as error:
        raise AnswerError(f"primary_output: {error}") from None
    if isinstance(primary, MissingPath):
        raise AnswerError(f"primary_output: {primary}")
    values = output_values(evidence) | {PRIMARY: primary.value}
    return with_values(evidence._replace(output=text_of(primary.value)), values)


def sum_metrics(measured: Mapping[str, Metrics]) -> Metrics:
    """Return the measures of a whole execution: sums over its blocks, None where nothing was."""
    if not measured:
        return UNMEASURED
    sums: dict[str, Any] = {}
    for name in _MEASURES - {"ttft_ms"}:
        values = [getattr(metrics, name) for metrics in measured.values()]
        numbers = [value for value in values if value is not None]
        sums[name] = sum(numbers) if numbers else None
    return Metrics(**sums)


def text_of(value: Any) -> str:
    """Return an answer as text: text as it is, any other value as JSON; raise `AnswerError`."""
    if isinstance(value, str):
        return value
    try:
        return json_text(list(value) if isinstance(value, tuple) else value)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"an answer is text or a JSON value, not {type(value).__name__} ({error})"
        raise AnswerError(message) from None


def _whole(value: Mapping[str, Any]) -> Evidence:
    outputs = value.get("outputs") or {}
    if not isinstance(outputs, Mapping):
        raise AnswerError("'outputs' has to be a mapping of block ids")
    evidence = block_evidence(outputs)
    values = output_values(evidence)
    details: dict[str, Any] = dict(evidence.details) if outputs else {}
    if "state" in value:
        details["state"] = json_value(value["state"])
    if value.get("errors"):
        errors = value["errors"]
        if not isinstance(errors, str | list | tuple):
            raise AnswerError("'errors' is a list of texts")
        details["errors"] = [errors] if isinstance(errors, str) else list(map(str, errors))
    if value.get("invocations"):
        if not isinstance(value["invocations"], Mapping):
            raise AnswerError("'invocations' is a mapping of block ids to numbers")
        details["invocations"] = dict(value["invocations"])
    evidence = evidence._replace(details=details or NOTHING)
    if value.get("metrics"):
        evidence = evidence._replace(metrics=_metrics(value["metrics"]))
    if value.get("output") is not None:
        evidence = evidence._replace(output=text_of(value["output"]))
        values[PRIMARY] = json_value(value["output"])
    evidence = with_values(evidence, values)
    if value.get("primary_output") is not None:
        return with_primary(evidence, str(value["primary_output"]))
    return evidence


def _metrics(raw: Any) -> Metrics:
    if not isinstance(raw, Mapping) or not set(raw) <= _MEASURES:
        raise AnswerError(f"'metrics' is a mapping of {', '.join(sorted(_MEASURES))}")
    return Metrics(**raw)


def json_value(value: Any) -> Any:
    """Return the value as JSON holds it; raise `AnswerError`."""
    try:
        return json_form(value)
    except ValueError as error:
        raise AnswerError(f"what JSON cannot hold: {error}") from None


@with_config(ConfigDict(extra="allow", strict=True))
class _Tokens(TypedDict):
    input: int
    output: int
    cached: NotRequired[int]
    reasoning: NotRequired[int]


@with_config(ConfigDict(extra="allow", strict=True))
class _Measures(TypedDict, total=False):
    token_usage: _Tokens | None
    cost_usd: float | None
    duration_ms: float | None


@cache
def _measures() -> TypeAdapter[Any]:
    return TypeAdapter(_Measures)


_TOKENS: Final = ("input", "output", "cached", "reasoning")


def evidence_in(answer: Mapping[str, Any], measured_ms: float) -> Evidence | None:
    """Return the evidence in a program's answer; None if it has neither `output` nor `text`.

    Raises `TargetError` of kind `metrics` where its measures have a wrong shape.
    """
    messages = answer.get("output") or answer.get("output_messages") or []
    if not _are_messages(messages) or not (messages or "text" in answer):
        return None
    try:
        _measures().validate_python(answer)
    except ValidationError as error:
        loc, message = next(iter(explain(error, answer, _Measures)))
        raise TargetError("metrics", f"the answer's {path_text(loc)}: {message}") from error
    said = (
        content_text(message["content"])
        for message in reversed(messages)
        if message["role"] == "assistant" and message.get("content") is not None
    )
    # A negative cost or duration is a mistake of the program and no measure.
    cost_usd, duration_ms = (
        value if (value := answer.get(name)) is not None and value >= 0 else None
        for name in ("cost_usd", "duration_ms")
    )
    tokens = answer.get("token_usage") or {}
    return Evidence(
        next(said, "") if messages else content_text(answer["text"]),
        metrics=Metrics(
            latency_ms=measured_ms if duration_ms is None else duration_ms,
            cost_usd=cost_usd,
            **{f"{name}_tokens": tokens.get(name) for name in _TOKENS},
        ),
        details={"messages": messages} if messages else NOTHING,
    )


def _are_messages(value: Any) -> bool:
    """Whether a value is a list of messages with roles, and of tool calls with names."""
    return isinstance(value, list) and all(
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and isinstance(calls := message.get("tool_calls", []), list)
        and all(isinstance(call, Mapping) and _is_name(call.get("tool")) for call in calls)
        for message in value
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)

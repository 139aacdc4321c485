"""What a program of the target `cli` answered: text, or JSON with messages and measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, NotRequired, Required

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.errors import TargetError
from evalcore.jsonvalues import parse, storable
from evalcore.judging.prompts import content_text
from evalcore.mistakes.wording import path_text
from evalcore.model.evidence import NOTHING, Evidence, Metrics, with_warnings
from evalcore.targets.command_batch import EvidenceOf

_OPEN: Final = ConfigDict(extra="allow", strict=True)


@with_config(_OPEN)
class _Call(TypedDict, total=False):
    tool: Required[Annotated[str, Field(min_length=1)]]


@with_config(_OPEN)
class _Message(TypedDict, total=False):
    role: Required[str]
    content: Any
    tool_calls: list[_Call]


@with_config(_OPEN)
class _Tokens(TypedDict):
    input: int
    output: int
    cached: NotRequired[int]
    reasoning: NotRequired[int]


@with_config(_OPEN)
class _Answer(TypedDict, total=False):
    output: list[_Message]
    output_messages: list[_Message]
    text: Any


@with_config(_OPEN)
class _Measures(TypedDict, total=False):
    token_usage: _Tokens | None
    cost_usd: float | None
    duration_ms: float | None


_ANSWER: Final[TypeAdapter[Any]] = TypeAdapter(_Answer)
_MEASURES: Final[TypeAdapter[Any]] = TypeAdapter(_Measures)


def read_answer(text: str, measured_ms: float) -> Evidence:
    """Return the evidence that a program's answer is.

    JSON counts if it is an object with `output` (messages) or `text`; any other answer is the
    output as it stands, with a warning if only its measures have a wrong shape. Without
    `duration_ms` the latency is `measured_ms`.
    """
    (text, answer), notes = storable((text, _object_in(text)))
    details: Mapping[str, Any] = NOTHING
    try:
        evidence = None if answer is None else evidence_in(answer, measured_ms)
    except TargetError as error:
        evidence, details = None, {"warnings": [f"{error}; the answer is taken as it stands"]}
    plain = Evidence(text, metrics=Metrics(latency_ms=measured_ms), details=details)
    return with_warnings(evidence or plain, notes)


def evidence_in(answer: Mapping[str, Any], measured_ms: float | None) -> Evidence | None:
    """Return the evidence in an object; None if it has neither `output` nor `text`.

    Raises `TargetError` of kind `metrics` where its measures have a wrong shape.
    """
    try:
        _ANSWER.validate_python(answer)
    except ValidationError:
        return None
    messages = answer.get("output") or answer.get("output_messages") or []
    if not messages and "text" not in answer:
        return None
    try:
        _MEASURES.validate_python(answer)
    except ValidationError as error:
        raise TargetError("metrics", f"the answer's {_mistake(error, answer)}") from error
    output = last_text(messages) if messages else _as_text(answer["text"])
    tokens = answer.get("token_usage") or {}
    latency_ms = _measure(answer, "duration_ms")
    metrics = Metrics(
        latency_ms=measured_ms if latency_ms is None else latency_ms,
        cost_usd=_measure(answer, "cost_usd"),
        input_tokens=tokens.get("input"),
        output_tokens=tokens.get("output"),
        cached_tokens=tokens.get("cached"),
        reasoning_tokens=tokens.get("reasoning"),
    )
    return Evidence(
        output, metrics=metrics, details={"messages": messages} if messages else NOTHING
    )


def read_batch(text: str) -> EvidenceOf:
    """Return what gives the answers of a batch's JSON lines by the ids of their tests."""
    records: dict[str, Mapping[str, Any]] = {}
    problem = ""
    # Only a line feed ends a line: a text in JSON may hold other separators, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        record = _object_in(line) if line.strip() else {}
        name = None if record is None else record.get("id")
        if isinstance(name, str) and name in records:
            problem = problem or f"has two lines with the id {name!r}"
        elif record is not None and isinstance(name, str):
            records[name] = record
        elif line.strip():
            problem = problem or f'has no JSON object with an "id" in line {number}'

    def evidence_of(name: str, share_ms: float) -> Evidence:
        if problem:
            raise TargetError("command", f"the batch's answer {problem}")
        if name not in records:
            raise TargetError("command", f"the batch's answer has no line with the id {name!r}")
        record, notes = storable(records[name])
        evidence = evidence_in(record, share_ms)
        if evidence is None:
            message = f"the batch's answer to {name!r} has neither messages in 'output' nor 'text'"
            raise TargetError("command", message)
        return with_warnings(evidence, notes)

    return evidence_of


def last_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last message of the assistant that has a content."""
    for message in reversed(messages):
        if message.get("role") == "assistant" and message.get("content") is not None:
            return content_text(message["content"])
    return ""


def _mistake(error: ValidationError, answer: Mapping[str, Any]) -> str:
    from evalcore.mistakes.shape_errors import explain

    loc, message = next(iter(explain(error, answer, _Measures)))
    return f"{path_text(loc)}: {message}"


def _measure(answer: Mapping[str, Any], name: str) -> float | None:
    value = answer.get(name)
    # A negative cost or duration is a mistake of the program and no measure.
    return None if value is None or value < 0 else float(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else content_text(value)


def _object_in(text: str) -> dict[str, Any] | None:
    value: Any = None
    with suppress(ValueError):
        value = parse(text)
    return value if isinstance(value, dict) else None

"""The assertion of a saved eval, one condition on one output handle, and the check that it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter, field_validator

from evalcore.checks.base import Check, Subject
from evalcore.checks.conditions import (
    STRICT_MODEL,
    AnyCondition,
    BlockedCode,
    Condition,
    blocked,
)
from evalcore.jsonvalues import PathSyntaxError, Resolved, Unresolved, parse_path, resolve
from evalcore.judging.asking import Judges
from evalcore.model.assertion import PASSED, Outcome, Verdict, failed
from evalcore.model.evidence import Evidence
from evalcore.wording import json_text, shorten


class AssertionTarget(BaseModel):
    """Which output handle an assertion looks at, and the path inside its payload."""

    model_config = STRICT_MODEL

    output_handle_id: Annotated[str, Field(min_length=1)]
    path: str | None = None

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str | None) -> str | None:
        if path == "":
            return None
        if path is not None:
            try:
                parse_path(path)
            except PathSyntaxError as error:
                raise ValueError(str(error)) from error
        return path


class EvalAssertion(BaseModel):
    """What a saved eval asserts; `label` is a name for people."""

    model_config = STRICT_MODEL

    id: str | None = None
    target: AssertionTarget
    condition: AnyCondition
    label: str | None = None


class JsonHandle(BaseModel):
    """A handle's value: any JSON."""

    model_config = STRICT_MODEL

    type: Literal["json"]
    data: Any


class FileReference(BaseModel):
    """A file that the service holds."""

    model_config = STRICT_MODEL

    id: Annotated[str, Field(min_length=1)]
    filename: str
    mime_type: str


class FileHandle(BaseModel):
    """A handle's value: a file."""

    model_config = STRICT_MODEL

    type: Literal["file"]
    document: FileReference


Handle = Annotated[JsonHandle | FileHandle, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class AssertionReading:
    """What an assertion came to: its verdict, and the value that it addressed, None without one."""

    verdict: Verdict
    actual_value: Any = None


def payload_of(handle: JsonHandle | FileHandle) -> Any:
    """Return the JSON value of a handle; of a file its reference."""
    return handle.data if isinstance(handle, JsonHandle) else handle.document.model_dump()


async def evaluate_assertion(
    assertion: EvalAssertion,
    outputs: Mapping[str, JsonHandle | FileHandle],
    judges: Judges,
    *,
    block_error: str | None = None,
) -> AssertionReading:
    """Return the verdict on the outputs of a block; `block_error` says why it has none.

    Blocked if the block failed, the handle does not exist, or the path leads nowhere; of
    `exists` and `not_exists` the last two say that there is no value.
    """
    target, condition = assertion.target, assertion.condition
    if block_error is not None:
        message = f"the block failed: {block_error}"
        return AssertionReading(blocked(BlockedCode.BLOCK_EXECUTION_FAILED, message))
    resolved = addressed_value(target, outputs)
    if isinstance(resolved, Verdict):
        return AssertionReading(_absent(condition, resolved))
    verdict = await condition.evaluate(resolved.value, judges)
    return AssertionReading(verdict, resolved.value)


def addressed_value(
    target: AssertionTarget, outputs: Mapping[str, JsonHandle | FileHandle]
) -> Resolved | Verdict:
    """Return what stands at the target, or the verdict (blocked) on its absence."""
    handle = outputs.get(target.output_handle_id)
    if handle is None:
        handles = ", ".join(outputs) or "none"
        message = f"the block has no output handle '{target.output_handle_id}'; it has {handles}"
        return blocked(BlockedCode.HANDLE_MISSING, message)
    path = () if target.path is None else parse_path(target.path)
    resolved = resolve(payload_of(handle), path)
    return _unresolved(target, resolved) if isinstance(resolved, Unresolved) else resolved


def _absent(condition: Condition, otherwise: Verdict) -> Verdict:
    """Return the verdict of a condition where there is no value."""
    match condition.kind:
        case "exists":
            return failed(otherwise.message)
        case "not_exists":
            return PASSED
        case _:
            return otherwise


def _unresolved(target: AssertionTarget, unresolved: Unresolved) -> Verdict:
    if unresolved.through_scalar:
        code, reason = BlockedCode.TYPE_ERROR, "goes on below a value that has no such parts"
    else:
        code, reason = BlockedCode.PATH_UNRESOLVED, "leads nowhere"
    after = f"'{unresolved.partial_path}'" if unresolved.partial_path else "the payload"
    return blocked(
        code,
        f"path '{target.path}' {reason}: the last value is at {after}",
        partial_path=unresolved.partial_path,
        partial_value=unresolved.partial_value,
    )


# Where a block's target leaves its handles in the details of the evidence.
HANDLE_OUTPUTS: Final = "handle_outputs"
# Why the block has no outputs.
BLOCK_ERROR: Final = "block_error"
_HANDLES: Final[TypeAdapter[dict[str, Any]]] = TypeAdapter(dict[str, Handle])


class EvalCondition(Check):
    """One condition on one output handle of a block, at an optional path."""

    nested: ClassVar[bool] = True

    target: AssertionTarget
    condition: AnyCondition
    label: str | None = None
    id: str | None = None

    async def check(self, subject: Subject) -> Verdict:
        """Return the verdict, with the whole assertion result in its details."""
        assertion = EvalAssertion.model_construct(
            id=self.id, target=self.target, condition=self.condition, label=self.label
        )
        reading = await evaluate_assertion(
            assertion,
            block_handles(subject.evidence),
            subject.context.judges,
            block_error=subject.evidence.details.get(BLOCK_ERROR),
        )
        verdict = reading.verdict
        return Verdict(
            verdict.outcome,
            verdict.score,
            verdict.message,
            actual=shorten(json_text(reading.actual_value)),
            details={"assertion_result": assertion_result(assertion, reading)},
        )


def block_handles(evidence: Evidence) -> dict[str, Any]:
    """Return the output handles that a replayed block left."""
    return _HANDLES.validate_python(evidence.details.get(HANDLE_OUTPUTS) or {})


def assertion_result(assertion: EvalAssertion, reading: AssertionReading) -> dict[str, Any]:
    """Return what an assertion came to, as the service shows it."""
    verdict, failure = reading.verdict, None
    details = verdict.details or {}
    if verdict.outcome is not Outcome.PASSED:
        failure = {
            "code": details.get("code", "condition_not_met"),
            "message": verdict.message,
            "details": {key: details.get(key) for key in ("partial_path", "partial_value")},
        }
    return {
        "assertion_id": assertion.id or "",
        "condition_kind": assertion.condition.kind,
        "outcome": str(verdict.outcome),
        "actual_value": reading.actual_value,
        "expected_value": assertion.condition.expected_value,
        "failure": failure,
    }

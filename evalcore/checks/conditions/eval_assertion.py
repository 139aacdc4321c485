"""The assertion of a saved eval: one condition on one output handle, at an optional path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evalcore.checks.conditions.base import Condition, ConditionServices
from evalcore.checks.conditions.kinds import AnyCondition
from evalcore.checks.conditions.payload_path import (
    PayloadPathError,
    Resolved,
    Unresolved,
    parse_payload_path,
    resolve,
)
from evalcore.checks.conditions.verdict import (
    PASSED,
    BlockedCode,
    ConditionVerdict,
    blocked,
    failed,
)
from evalcore.model.assertion import Outcome

_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class AssertionTarget(BaseModel):
    """Which output handle an assertion looks at, and the path inside its payload."""

    model_config = _STRICT

    output_handle_id: Annotated[str, Field(min_length=1)]
    path: str | None = None

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str | None) -> str | None:
        if path == "":
            return None
        if path is not None:
            try:
                parse_payload_path(path)
            except PayloadPathError as error:
                raise ValueError(str(error)) from error
        return path


class EvalAssertion(BaseModel):
    """What a saved eval asserts; `label` is a name for people."""

    model_config = _STRICT

    id: str | None = None
    target: AssertionTarget
    condition: AnyCondition
    label: str | None = None


class JsonHandle(BaseModel):
    """A handle's value: any JSON."""

    model_config = _STRICT

    type: Literal["json"]
    data: Any


class FileReference(BaseModel):
    """A file that the service holds."""

    model_config = _STRICT

    id: Annotated[str, Field(min_length=1)]
    filename: str
    mime_type: str


class FileHandle(BaseModel):
    """A handle's value: a file."""

    model_config = _STRICT

    type: Literal["file"]
    document: FileReference


Handle = Annotated[JsonHandle | FileHandle, Field(discriminator="type")]


@dataclass(frozen=True, slots=True)
class AssertionReading:
    """What an assertion came to: its verdict, and the value that it addressed, None without one."""

    verdict: ConditionVerdict
    actual_value: Any = None


def payload_of(handle: JsonHandle | FileHandle) -> Any:
    """Return the JSON value of a handle; of a file its reference."""
    return handle.data if isinstance(handle, JsonHandle) else handle.document.model_dump()


async def evaluate_assertion(
    assertion: EvalAssertion,
    outputs: Mapping[str, JsonHandle | FileHandle],
    services: ConditionServices,
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
    if isinstance(resolved, ConditionVerdict):
        return AssertionReading(_absent(condition, resolved))
    verdict = await condition.evaluate(resolved.value, services)
    return AssertionReading(verdict, resolved.value)


def addressed_value(
    target: AssertionTarget, outputs: Mapping[str, JsonHandle | FileHandle]
) -> Resolved | ConditionVerdict:
    """Return what stands at the target, or the verdict (blocked) on its absence."""
    handle = outputs.get(target.output_handle_id)
    if handle is None:
        return _missing_handle(target, outputs)
    resolved = resolve(payload_of(handle), target.path)
    return _unresolved(target, resolved) if isinstance(resolved, Unresolved) else resolved


def _absent(condition: Condition, otherwise: ConditionVerdict) -> ConditionVerdict:
    """Return the verdict of a condition where there is no value."""
    match condition.kind:
        case "exists":
            return failed(otherwise.message)
        case "not_exists":
            return PASSED
        case _:
            return otherwise


def _missing_handle(
    target: AssertionTarget, outputs: Mapping[str, JsonHandle | FileHandle]
) -> ConditionVerdict:
    handles = ", ".join(outputs) or "none"
    message = f"the block has no output handle '{target.output_handle_id}'; it has {handles}"
    return blocked(BlockedCode.HANDLE_MISSING, message)


def _unresolved(target: AssertionTarget, unresolved: Unresolved) -> ConditionVerdict:
    if unresolved.through_scalar:
        code, reason = BlockedCode.TYPE_ERROR, "goes on below a value that has no such parts"
    else:
        code, reason = BlockedCode.PATH_UNRESOLVED, "leads nowhere"
    after = f"'{unresolved.partial_path}'" if unresolved.partial_path else "the payload"
    return ConditionVerdict(
        Outcome.BLOCKED,
        f"path '{target.path}' {reason}: the last value is at {after}",
        code,
        unresolved.partial_path,
        unresolved.partial_value,
    )

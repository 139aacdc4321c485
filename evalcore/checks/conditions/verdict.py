"""The verdict of a condition: passed, failed, or blocked with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evalcore.model.assertion import Outcome


class BlockedCode(StrEnum):
    """Why a condition could not be evaluated."""

    BLOCK_EXECUTION_FAILED = "block_execution_failed"
    HANDLE_MISSING = "handle_missing"
    PATH_UNRESOLVED = "path_unresolved"
    TYPE_ERROR = "type_error"
    INVALID_REGEX = "invalid_regex"
    SCHEMA_INVALID = "schema_invalid"
    JUDGE_UNAVAILABLE = "judge_unavailable"


@dataclass(frozen=True, slots=True)
class ConditionVerdict:
    """The outcome of a condition, and why it is not passed.

    `code`, `partial_path` and `partial_value` are set if it is blocked.
    """

    outcome: Outcome
    message: str = ""
    code: BlockedCode | None = None
    partial_path: str | None = None
    partial_value: Any = None


PASSED = ConditionVerdict(Outcome.PASSED)


def failed(message: str) -> ConditionVerdict:
    """Return the verdict of a condition that does not hold."""
    return ConditionVerdict(Outcome.FAILED, message)


def blocked(code: BlockedCode, message: str) -> ConditionVerdict:
    """Return the verdict of a condition that cannot be evaluated."""
    return ConditionVerdict(Outcome.BLOCKED, message, code)


def verdict(holds: bool, message: str) -> ConditionVerdict:
    """Return PASSED if the condition holds, else the failure with this message."""
    return PASSED if holds else failed(message)

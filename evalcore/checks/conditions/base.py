"""The base of every condition, and what conditions need beside the value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from evalcore.checks.base import Fault
from evalcore.checks.conditions.verdict import BlockedCode, ConditionVerdict, blocked
from evalcore.judging.asking import NO_JUDGES, Judges
from evalcore.mistakes.wording import describe


@dataclass(frozen=True, slots=True)
class ConditionServices:
    """What conditions ask: judges and embeddings; `regex_timeout_s` bounds one match."""

    judges: Judges = NO_JUDGES
    regex_timeout_s: float = 2.0


NO_SERVICES = ConditionServices()


class Condition(BaseModel):
    """One kind of condition: its fields as they stand in a request, and when it holds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    kind: str

    @property
    def asks_judge(self) -> bool:
        """Whether a judge decides it."""
        return False

    @property
    def asks_embeddings(self) -> bool:
        """Whether it compares embeddings."""
        return False

    @property
    def expected_value(self) -> Any:
        """The JSON value that a result shows as expected."""
        return self.model_dump(mode="json", by_alias=True).get("expected")

    def mistakes(self) -> Iterable[str]:
        """Return why the condition can never be met; it is refused when it is saved."""
        return ()

    def faults(self) -> Iterable[Fault]:
        """Return why the condition cannot be applied to any value, and what has no effect."""
        return ()

    @property
    def certain_outcome(self) -> bool | None:
        """Whether every value passes, or none; None if it depends on the value."""
        return None

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict on the addressed JSON value."""
        raise NotImplementedError

    async def evaluate(self, value: Any, services: ConditionServices) -> ConditionVerdict:  # noqa: ARG002 - for kinds that ask
        """Return the verdict on the addressed JSON value; conditions that ask wait here."""
        return self.check(value)


class TextCondition(Condition):
    """A condition on a text; on anything else it is blocked."""

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict of `check_text`."""
        return self.check_text(value) if isinstance(value, str) else type_error("text", value)

    def check_text(self, text: str) -> ConditionVerdict:
        """Return the verdict on a text."""
        raise NotImplementedError


def type_error(expected: str, value: Any) -> ConditionVerdict:
    """Return the verdict on a value whose type the condition does not fit."""
    return blocked(BlockedCode.TYPE_ERROR, f"expected {expected}, got {describe(value)}")


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)

"""Who is told of a run's decision, and when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, with_config

from evalcore.model.gate import Decision

VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
LITERAL_ADDRESS: Final = (
    "is no name of an environment variable; an address holds a secret, which a file would show to "
    "everyone who reads it: put the address into a variable and write its name (EVAL_NOTIFY_TEAM)"
)


class NotifyOn(StrEnum):
    """Which decisions are told."""

    CHANGE = "change"
    FAILURE = "failure"
    ALWAYS = "always"


def _check_variable(name: str) -> str:
    if not VARIABLE_NAME.match(name):
        raise ValueError(LITERAL_ADDRESS)
    return name


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class NotifyPolicy:
    """Names of environment variables that hold Apprise addresses, and when they are told."""

    to: tuple[Annotated[str, AfterValidator(_check_variable)], ...] = ()
    on: NotifyOn = NotifyOn.CHANGE

    def is_due(self, decision: Decision, before: str | None) -> bool:
        """Whether a decision is told; `before` is that of the suite's run before, None of none.

        The first run of a suite is a change unless it passes.
        """
        if self.on is NotifyOn.ALWAYS:
            return True
        if self.on is NotifyOn.FAILURE:
            return decision is not Decision.PASS
        return decision != (Decision.PASS if before is None else before)

"""A run: one execution of one plan, and what its gates decide."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    ConfigDict,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    with_config,
)


class GateOutcome(StrEnum):
    """What a gate decides. Only `pass` counts as passed."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Decision(StrEnum):
    """What a run decides."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class GateSpec:
    """A gate by its name in `gates.registry`, with its checked parameters."""

    gate: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate decided and why. `details` are JSON values.

    `remedy` says what would settle a failed or inconclusive outcome that more cases or iterations
    could change; None where nothing of that kind would.
    """

    name: str
    outcome: GateOutcome
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    remedy: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the outcome is `pass`."""
        return self.outcome is GateOutcome.PASS


SCHEMA = 1
# Stands in `Manifest.execution` until the whole plan is stored.
PLANNING = "planning"
REFUSED = "refused"
"""The reason of items that were not tried since a provider refuses every call: its key, credit."""
DECIDED = "decided"
"""The reason of items that were skipped since the gates of the run were decided before."""
NOT_FOR_TARGET = "not for this target"
"""The reason of items that were skipped since their case names the targets that answer it."""


class State(StrEnum):
    """Lifecycle of a run and of a work item."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


# What reads a stored manifest holds it to the types below.
_STORED: Final = ConfigDict(extra="forbid", strict=True)


@with_config(_STORED)
@dataclass(frozen=True, slots=True)
class Plan:
    """The frozen size of a run. Item `i` is case `i // (variants × iterations)`, and so on.

    Shard `s` holds the items from `s × shard_size`; the plan's part `p` holds the cases from
    `p × part_cases`. With a pilot the first shard holds that many items, the others follow; how
    large those are is provisional until the pilot's items were timed and the plan is `settled`.
    In a plan `by_round` a shard holds one iteration of some cases (`shard_size // variants`), with
    all their variants; the shards of the first iteration of all cases come first.
    """

    items: PositiveInt
    cases: PositiveInt
    variants: PositiveInt
    iterations: PositiveInt
    shards: PositiveInt
    shard_size: PositiveInt
    parts: PositiveInt
    part_cases: PositiveInt
    pilot: NonNegativeInt = 0
    settled: bool = True
    by_round: bool = False

    def shard_items(self, shard: int) -> range:
        """Return the items of a shard; `stop - 1` is its last one."""
        if self.by_round:
            return self._round_items(*divmod(shard, self.round_shards))
        if self.pilot and shard == 0:
            return range(self.pilot)
        start = self.pilot + (shard - bool(self.pilot)) * self.shard_size
        return range(start, min(start + self.shard_size, self.items))

    def shard_of(self, item: int) -> int:
        """Return the shard that holds an item."""
        if self.by_round:
            case = item // self.items_per_case
            block = case // (self.shard_size // self.variants)
            return item % self.iterations * self.round_shards + block
        if item < self.pilot:
            return 0
        return (item - self.pilot) // self.shard_size + bool(self.pilot)

    @property
    def round_shards(self) -> int:
        """Shards that one iteration of all cases has, in a plan `by_round`."""
        return -(-self.cases * self.variants // self.shard_size)

    def _round_items(self, iteration: int, block: int) -> range:
        cases = self.shard_size // self.variants
        stop = min((block + 1) * cases, self.cases) * self.items_per_case
        first = block * cases * self.items_per_case + iteration
        return range(first, stop - self.iterations + iteration + 1, self.iterations)

    def cases_of_part(self, part: int) -> int:
        """Return how many cases a part of the plan holds."""
        return max(0, min(self.part_cases, self.cases - part * self.part_cases))

    @property
    def stored(self) -> dict[str, Any]:
        """The form in which manifests and seals hold it; as in earlier versions without rounds."""
        values = asdict(self)
        if not self.by_round:
            del values["by_round"]
        return values

    @property
    def items_per_case(self) -> int:
        """Work items that one case has."""
        return self.variants * self.iterations


@with_config(_STORED)
@dataclass(frozen=True, slots=True)
class StoredPart:
    """A shard's result part as it was when the run became final: its rows and its bytes' digest."""

    rows: NonNegativeInt
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]


def _check_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no time zone")
    return text


_Time = Annotated[str, AfterValidator(_check_time)]


@with_config(_STORED)
@dataclass(frozen=True, slots=True)
class Manifest:
    """What stands in `manifest.json`. Times are ISO 8601 in UTC.

    `settings` holds what was decided when the run was planned; its `latency_s` is the median time
    of an item in earlier runs or in the pilot, None if there is neither.
    `execution` holds what this and earlier processes measured: when the first shard started and
    the last one was committed, and how many items had to be executed again. `parts` are the result
    parts of a final run in the order of its shards; None before, and in runs of earlier versions.
    """

    id: str
    suite: str
    format: str
    state: State
    mode: str
    created_at: _Time
    source: Mapping[str, Any]
    plan: Plan
    settings: Mapping[str, Any]
    engine: Mapping[str, Any]
    started_at: _Time | None = None
    ended_at: _Time | None = None
    counts: Mapping[str, NonNegativeInt] | None = None
    decision: Annotated[str, AfterValidator(Decision)] | None = None
    execution: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[StoredPart, ...] | None = None
    schema: int = SCHEMA

    @property
    def is_planned(self) -> bool:
        """Whether the whole plan is stored: `PLANNING` leaves `execution` after its last part."""
        return PLANNING not in self.execution

    @property
    def epoch(self) -> int:
        """The epoch of the run's lease, as the process that took it over last has noted it."""
        return int(self.execution.get("epoch", 1))


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

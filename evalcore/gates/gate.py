"""What a gate is: a frozen dataclass with its parameters, its documentation and its decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform

from evalcore.model.run import GateOutcome, GateResult, GateSpec
from evalcore.model.summary import Counts, Summary
from evalcore.shapes import parameter_values, restore, snake_case
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.model.suite import Policy


class CaseValue(StrEnum):
    """What a sequential gate reads of a case."""

    SCORE = "score"
    PASSED = "passed"
    DIFFERENCE = "difference"
    PAST_DIFFERENCE = "past_difference"
    RELIABILITY = "reliability"


DIFFERENCES = frozenset({CaseValue.DIFFERENCE, CaseValue.PAST_DIFFERENCE})


class SequentialRule(NamedTuple):
    """Passes once the mean of a value is surely at least the boundary, fails once it surely is not.

    Each side errs with probability `alpha` at most. `per_variant`: every variant has to pass.
    """

    value: CaseValue
    boundary: float
    alpha: float = 0.05
    per_variant: bool = False
    k: int = 1


@dataclass_transform(frozen_default=True)
class Gate:
    """A decision over the whole run; a subclass is a frozen dataclass of its parameters.

    `gate` is its name: the class's in snake_case, without `Gate`. `example` is a value of its one
    required parameter, for messages and the help of `--gate`; of several required ones it is
    `key=value,key=value`. A gate that `compares` needs a baseline. The docstring says when the gate
    passes: it is the row in docs/reference/gates.md. `define_suite` checks the gates that Python
    makes. A gate with a `query` reads what the summary does not hold: `rows` returns the rows of
    analytics/queries/gate_NAME.sql over the tables `items` and `cases` of the run, with the gate's
    parameters as `$key`. `value_key` and `threshold_key` are the keys of its details that hold the
    number it looks at and the bound of that number, for the history. `about_errors`: it is decided
    also if nothing was evaluated; `about_outcomes` (the argument `outcomes`): by passes or scores.
    `is_sequential`: it has a `sequential` rule; `fails_early`: it has a rule `has_failed`.
    """

    gate: ClassVar[str]
    example: ClassVar[str] = ""
    compares: ClassVar[bool] = False
    query: ClassVar[bool] = False
    value_key: ClassVar[str] = "value"
    threshold_key: ClassVar[str] = "threshold"
    about_errors: ClassVar[bool] = False
    about_outcomes: ClassVar[bool] = False
    is_sequential: ClassVar[bool] = False
    fails_early: ClassVar[bool] = False

    @property
    def result_name(self) -> str:
        """The name of its results."""
        return self.gate

    def __init_subclass__(
        cls,
        *,
        example: str = "",
        compares: bool = False,
        query: bool = False,
        outcomes: bool = False,
    ) -> None:
        name = cls.__name__.removesuffix("Gate")
        cls.gate = snake_case(name[0].lower() + name[1:])
        cls.example = example
        cls.compares = compares
        cls.query = query
        cls.about_outcomes = outcomes or cls.about_outcomes
        cls.is_sequential = cls.sequential is not Gate.sequential
        cls.fails_early = cls.has_failed is not Gate.has_failed
        dataclass(frozen=True)(cls)

    @property
    def params(self) -> Mapping[str, Any]:
        """The values of the parameters by their keys in files."""
        return parameter_values(self)

    @property
    def spec(self) -> GateSpec:
        """The form in which a policy and a stored plan hold the gate."""
        return GateSpec(self.gate, self.params)

    @property
    def needs_assertions(self) -> bool:
        """Whether the gate cannot pass if no case has an assertion."""
        return self.about_outcomes

    @property
    def sequential(self) -> SequentialRule | None:
        """How the gate is decided before all cases are run; None if it cannot be."""
        return None

    def has_failed(
        self,
        summary: Summary,  # noqa: ARG002  (a rule of its own reads them)
        policy: Policy,  # noqa: ARG002
        *,
        repeats: bool,  # noqa: ARG002
    ) -> bool:
        """Whether the gate fails by some of the run's cases, and those to come cannot change it.

        `repeats`: the cases of the summary will run again.
        """
        return False

    @property
    def key(self) -> str:
        """The gate with its parameters, by which the summary holds the rows of its query."""
        return f"{self.gate}: {self.params}"

    def rows(self, summary: Summary) -> tuple[Any, ...]:
        """Return the rows of the gate's query; none at all for a summary without a run."""
        return summary.gate_rows.get(self.key, ())

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        """Return the decision over a run's aggregates; never raises."""
        raise NotImplementedError

    def passes_if(self, passed: bool, message: str, details: Mapping[str, Any]) -> GateResult:
        """Return the result that passes or fails."""
        outcome = GateOutcome.PASS if passed else GateOutcome.FAIL
        return GateResult(self.gate, outcome, message, details)

    def fails(self, message: str, **details: Any) -> GateResult:
        """Return the result that fails."""
        return self.passes_if(False, message, details)

    def inconclusive(self, message: str, **details: Any) -> GateResult:
        """Return the result that decides nothing."""
        return GateResult(self.gate, GateOutcome.INCONCLUSIVE, message, details)


_Kind = TypeVar("_Kind", bound=Gate)


def gates_of(policy: Policy, kind: type[_Kind]) -> tuple[_Kind, ...]:
    """Return the gates of one kind in a policy."""
    return tuple(restore(kind, spec.params) for spec in policy.gates if spec.gate == kind.gate)


_SMALLEST: Final = 1e-12


def number(value: float) -> str:
    """Return at most four decimals, more where rounding would make another number of a miss.

    A small amount has as many decimals as it needs and no exponent: `0.0000053`. Messages of stored
    runs are made again, so the form of a number stays.
    """
    short = f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    # 0.89999 must not look like the 0.9 that it misses; 0.8889 for 8/9 is exact enough.
    if len(short) == 6 or float(short) == value:
        return short
    exact = f"{value:.10g}"
    if not _SMALLEST <= abs(value) < 1:
        return exact
    from decimal import Decimal

    return f"{Decimal(exact):f}"


def compared(value: float, sign: str, bound: float) -> str:
    """Return `0.75 < 0.8`; numbers that differ look different: `0.6666666667 < 0.6667` for 2/3."""
    left, right = number(value), number(bound)
    if sign == "<" and left == right:
        left, right = f"{value:.10g}", f"{bound:.10g}"
        if left == right:
            left, right = repr(value), repr(bound)
    return f"{left} {sign} {right}"


def unmeasured_items(counts: Counts) -> str:
    """Return how many items are not measured, and why: `of 5 items 2 in error, 1 skipped`."""
    states = {
        "in error": counts.error,
        "blocked": counts.blocked,
        "skipped": counts.skipped,
        "cancelled": counts.cancelled,
    }
    reasons = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    if not reasons:
        return "no item was evaluated"
    return f"of {counted(counts.planned, 'item')} {reasons}"

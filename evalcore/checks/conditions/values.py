"""Conditions on values as they are: presence, equality, containment, length, schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from evalcore.checks.base import Fault
from evalcore.checks.conditions.base import Condition, is_number, type_error
from evalcore.checks.conditions.json_values import contains_object, equal, without_reasoning
from evalcore.checks.conditions.verdict import (
    PASSED,
    BlockedCode,
    ConditionVerdict,
    blocked,
    failed,
    verdict,
)
from evalcore.mistakes.foreign_text import json_text, shorten

Operator = Literal["gt", "gte", "lt", "lte", "eq", "neq"]
_SIGNS = {"gt": ">", "gte": "≥", "lt": "<", "lte": "≤", "eq": "=", "neq": "≠"}


def _keep_integer(written: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Return a number as it is written: as a float an integer would lose digits beyond 2^53."""
    number = validate(written)
    return written if isinstance(written, int) else number


Number = Annotated[
    float,
    WrapValidator(_keep_integer),
    PlainSerializer(lambda number: number, return_type=int | float),
    WithJsonSchema({"type": "number"}),
]


class Exists(Condition):
    """There is a value at the path; null is one."""

    kind: Literal["exists"]

    def check(self, value: Any) -> ConditionVerdict:  # noqa: ARG002 - that there is one is all
        """Return passed: there is a value."""
        return PASSED


class NotExists(Condition):
    """There is no value at the path: a missing key, an index out of range, a path through null."""

    kind: Literal["not_exists"]

    def check(self, value: Any) -> ConditionVerdict:
        """Return failed: there is a value."""
        return failed(f"there is a value: {_brief(value)}")


class Equals(Condition):
    """The value is `expected`: deep, typed, in any order of keys."""

    kind: Literal["equals"]
    expected: Any

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; `reasoning___` keys of both sides do not count."""
        return verdict(
            equal(without_reasoning(value), without_reasoning(self.expected)),
            f"{_brief(value)} is not {_brief(self.expected)}",
        )


class NotEquals(Condition):
    """The value is not `expected`."""

    kind: Literal["not_equals"]
    expected: Any

    def check(self, value: Any) -> ConditionVerdict:
        """Return the opposite of `equals`."""
        return verdict(
            not equal(without_reasoning(value), without_reasoning(self.expected)),
            f"the value is {_brief(self.expected)}",
        )


class Contains(Condition):
    """A text contains the text `expected`, or a list has `expected` as an element."""

    kind: Literal["contains"]
    expected: Any

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; blocked for values that are neither, and a text in search of none."""
        contained = _contained(value, self.expected)
        if isinstance(contained, ConditionVerdict):
            return contained
        return verdict(contained, f"{_brief(value)} does not contain {_brief(self.expected)}")


class NotContains(Condition):
    """A text does not contain the text `expected`, or a list lacks it."""

    kind: Literal["not_contains"]
    expected: Any

    def check(self, value: Any) -> ConditionVerdict:
        """Return the opposite of `contains`; blocked for the same values."""
        contained = _contained(value, self.expected)
        if isinstance(contained, ConditionVerdict):
            return contained
        return verdict(not contained, f"{_brief(value)} contains {_brief(self.expected)}")


def _contained(value: Any, expected: Any) -> bool | ConditionVerdict:
    if isinstance(value, list):
        return any(equal(element, expected) for element in value)
    if not isinstance(value, str):
        return type_error("text or a list", value)
    return expected in value if isinstance(expected, str) else type_error("text", expected)


class ObjectContains(Condition):
    """The value is an object that has all of `expected`, recursively."""

    kind: Literal["object_contains"]
    expected: dict[str, Any]

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; `reasoning___` keys do not count."""
        if not isinstance(value, dict):
            return type_error("an object", value)
        return verdict(
            contains_object(without_reasoning(value), without_reasoning(self.expected)),
            f"{_brief(value)} does not contain {_brief(self.expected)}",
        )


class ArrayContains(Condition):
    """One element of a list contains the object `expected`, or equals another value."""

    kind: Literal["array_contains"]
    expected: Any

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; `reasoning___` keys do not count."""
        if not isinstance(value, list):
            return type_error("a list", value)
        expected = without_reasoning(self.expected)
        return verdict(
            any(contains_object(without_reasoning(element), expected) for element in value),
            f"no element of {_brief(value)} contains {_brief(self.expected)}",
        )


class NumberCompare(Condition):
    """A number compares with `expected` as `op` says."""

    kind: Literal["number_compare"]
    op: Operator
    expected: Number

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; numeric texts and booleans are no numbers."""
        if not is_number(value):
            return type_error("a number", value)
        return compared(value, self.op, self.expected)


class Between(Condition):
    """A number lies between `lower` and `upper`, both included unless `inclusive` is false."""

    kind: Literal["between"]
    lower: Number
    upper: Number
    inclusive: bool = True

    def mistakes(self) -> Iterator[str]:
        """Yield that no number lies between the bounds."""
        if self.lower > self.upper:
            yield f"lower ({_number_text(self.lower)}) is above upper ({_number_text(self.upper)})"

    @property
    def certain_outcome(self) -> bool | None:
        """False if the bounds are the same number and do not count."""
        return False if self.lower == self.upper and not self.inclusive else None

    @property
    def expected_value(self) -> Any:
        """Both bounds, and whether they count."""
        return {"lower": self.lower, "upper": self.upper, "inclusive": self.inclusive}

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; numeric texts and booleans are no numbers."""
        if not is_number(value):
            return type_error("a number", value)
        inside = (
            self.lower <= value <= self.upper if self.inclusive else self.lower < value < self.upper
        )
        bounds = f"{_number_text(self.lower)} and {_number_text(self.upper)}"
        return verdict(inside, f"{value} is not between {bounds}")


class LengthCompare(Condition):
    """The length of a text, a list or an object compares with `expected` as `op` says."""

    kind: Literal["length_compare"]
    op: Operator
    expected: Number

    @property
    def certain_outcome(self) -> bool | None:
        """The outcome of every length, which is a whole number of 0 or more."""
        expected = self.expected
        is_length = expected >= 0 and expected == int(expected)
        certain = {
            "gt": True if expected < 0 else None,
            "gte": True if expected <= 0 else None,
            "lt": False if expected <= 0 else None,
            "lte": False if expected < 0 else None,
            "eq": None if is_length else False,
            "neq": None if is_length else True,
        }
        return certain[self.op]

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; the length of a text is its number of code points."""
        if not isinstance(value, str | list | dict):
            return type_error("text, a list or an object", value)
        return compared(len(value), self.op, self.expected, "length ")


class JsonSchemaValid(Condition):
    """The value conforms to a JSON Schema; nothing that it refers to is fetched."""

    kind: Literal["json_schema_valid"]
    schema_: dict[str, Any] | bool = Field(alias="schema")

    @property
    def expected_value(self) -> Any:
        """The schema."""
        return self.schema_

    def faults(self) -> Iterator[Fault]:
        """Yield what makes the schema none, and what of it has no effect."""
        from evalcore.checks.json_schema import schema_faults

        for each in schema_faults(self.schema_):
            yield each._replace(path=("schema", *each.path))

    def check(self, value: Any) -> ConditionVerdict:
        """Return the verdict; blocked if the schema is not valid or cannot be applied."""
        from evalcore.checks.json_schema import SchemaProblem, first_mistake

        try:
            mistake = first_mistake(value, self.schema_, 2.0)
        except SchemaProblem as error:
            return blocked(BlockedCode.SCHEMA_INVALID, str(error))
        return PASSED if mistake is None else failed(mistake)


def compared(value: float, op: Operator, expected: float, noun: str = "") -> ConditionVerdict:
    """Return the verdict of a comparison of two numbers."""
    holds = {
        "gt": value > expected,
        "gte": value >= expected,
        "lt": value < expected,
        "lte": value <= expected,
        "eq": value == expected,
        "neq": value != expected,
    }[op]
    return verdict(holds, f"{noun}{value} is not {_SIGNS[op]} {_number_text(expected)}")


def _number_text(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def _brief(value: Any) -> str:
    return shorten(json_text(value), 120)

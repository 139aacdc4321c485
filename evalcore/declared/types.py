"""The types of fields that several declared classes share."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, TypeVar, Union, get_args

from pydantic import AfterValidator, Discriminator, Field, GetCoreSchemaHandler, Strict, Tag
from pydantic_core import PydanticKnownError, core_schema

from evalcore.model.evidence import LARGEST
from evalcore.model.iterations import AUTO, ITERATIONS_FORMS, MOST_ITERATIONS, parse_iterations


def _check_iterations(text: str) -> str:
    if not text.startswith(AUTO):
        # A number in quotes is text, as everywhere else.
        raise ValueError(f"expected {ITERATIONS_FORMS}, got {text!r}")
    parse_iterations(text)
    return text


Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
IterationCount = Annotated[int, Field(ge=1, le=MOST_ITERATIONS)]
Repetitions = Annotated[
    Annotated[IterationCount, Tag("number")]
    | Annotated[
        str,
        AfterValidator(_check_iterations),
        Field(json_schema_extra={"pattern": f"^{AUTO}(:[0-9]+)?$"}),
        Tag("text"),
    ],
    Discriminator(lambda value: "text" if isinstance(value, str) else "number"),
]
"""How often each case is run: a number, `auto` or `auto:MAX` (`model.iterations`)."""
Measure = Annotated[float, Field(ge=0, le=LARGEST)]
Seconds = Annotated[float, Field(gt=0)]

T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list in the file."""


def _refuse_empty(members: tuple[T, ...]) -> tuple[T, ...]:
    if not members:
        details = {"field_type": "List", "min_length": 1, "actual_length": 0}
        raise PydanticKnownError("too_short", details)
    return members


# Pydantic counts only the sound members of a tuple, and would call a list of wrong ones empty.
NonEmpty = Annotated[
    tuple[T, ...],
    Strict(strict=False),
    AfterValidator(_refuse_empty),
    Field(json_schema_extra={"minItems": 1}),
]
"""A list in the file with at least one member."""


class _NotNull:
    """Refuses null: a key is left out or has a value."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return the schema of the type without None."""
        members = [member for member in get_args(source) if member is not NoneType]
        return handler(Union[tuple(members)])  # noqa: UP007 - the members are values


OrAbsent = Annotated[T | None, _NotNull()]
"""A value, or None where the key is left out; null is a mistake."""


def or_null(hint: Any) -> Any:
    """Return the type of a field in its stored form, which has null where the key is left out."""
    marks = getattr(hint, "__metadata__", ())
    if not any(isinstance(mark, _NotNull) for mark in marks):
        return hint
    return hint.__origin__


Scalar = Annotated[
    str | int | float | bool,
    Field(description="Text; numbers and booleans are compared as their JSON text"),
]
TextOrTexts = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list) else "<text>"),
]


def text_or_mapping(value: object) -> str:
    """Name the member of a union by the kind of value, so that a mistake is reported once."""
    return "<mapping>" if isinstance(value, dict) else "<text>"

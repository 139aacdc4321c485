"""The types of fields that several declared classes share."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, TypeVar, Union, get_args

from pydantic import Field, GetCoreSchemaHandler, Strict
from pydantic_core import core_schema

from evalcore.model.measures import LARGEST

Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Measure = Annotated[float, Field(ge=0, le=LARGEST)]
Seconds = Annotated[float, Field(gt=0)]

T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list in the file."""


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
